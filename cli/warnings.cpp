#include "gantry/cli/warnings.h"

#include <cstdio>

namespace gantry::cli {

void warn_of_passed_over(const std::string& fault) {
  std::fputs(("warning: passed over " + fault + "\n").c_str(), stderr);
}

}  // namespace gantry::cli

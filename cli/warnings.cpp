#include "gantry/cli/warnings.h"

#include <cstdio>

namespace gantry::cli {

void warn_of_passed_over(const std::string& fault) {
  std::fputs(("warning: a checkpoint was passed over: " + fault + "\n").c_str(), stderr);
}

void warn_of_new_weights(const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::string list;
  for (const auto& name : names) list += (list.empty() ? "" : ", ") + name;
  std::fputs(("warning: new in this model, with initial weights: " + list + "\n").c_str(), stderr);
}

}  // namespace gantry::cli

#include "gantry/core/planted.h"

#ifdef GANTRY_PLANTED
#include <cstdlib>

namespace gantry {

bool planted(std::string_view fault) {
  static const char* const named = std::getenv("GANTRY_FAULT");
  return named && fault == named;
}

}  // namespace gantry
#endif

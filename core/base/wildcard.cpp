#include "gantry/core/base/wildcard.h"

namespace gantry {

// Each star first matches as little as possible. If the rest does not fit, the last star matches one character more. An
// earlier star need not be changed, because its shortest match leaves the most text for the stars after it.
bool matches_pattern(std::string_view pattern, std::string_view name, Star star) {
  std::size_t p = 0, n = 0;
  std::size_t after_star = pattern.npos, taken = 0;  // the position after the last star, and the end of its match
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else {
      if (after_star == pattern.npos || (star == Star::kOnePart && name[taken] == '.')) return false;
      p = after_star;
      n = ++taken;
    }
  }
  return pattern.find_first_not_of('*', p) == pattern.npos;
}

}  // namespace gantry

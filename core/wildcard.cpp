#include "gantry/core/wildcard.h"

namespace gantry {

// Each star takes as little as it can. If what follows it does not fit, the last star takes one character more: an
// earlier one has no need to, since the least that it takes leaves the most for those behind it.
bool matches_pattern(std::string_view pattern, std::string_view name, Star star) {
  std::size_t p = 0, n = 0;
  std::size_t after_star = pattern.npos, taken = 0;  // the place behind the last star, and the end of what it took
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

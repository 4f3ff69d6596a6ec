// Faults that the tests plant, to see that they are caught: where one can be planted, the code asks for it by name. In
// the library that users link there are none, and every question is a constant. tests/planted/faults.tsv lists them.
#pragma once

#include <string_view>

namespace gantry {

#ifdef GANTRY_PLANTED
// Whether the environment's GANTRY_FAULT names it.
bool planted(std::string_view fault);
#else
constexpr bool planted(std::string_view /*fault*/) { return false; }
#endif

}  // namespace gantry

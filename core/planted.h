// Injected faults, with which the tests check that faults are detected. The code asks for a fault by name at the place
// where it can be injected. The library for users contains none, and every query is a constant.
// tests/planted/faults.tsv lists them.
#pragma once

#include <string_view>

namespace gantry {

#ifdef GANTRY_PLANTED
// Whether the environment variable GANTRY_FAULT names this fault.
bool planted(std::string_view fault);
#else
constexpr bool planted(std::string_view /*fault*/) { return false; }
#endif

}  // namespace gantry

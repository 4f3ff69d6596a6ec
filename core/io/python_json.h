// JSON as Python's json module writes it: with the bare word Infinity, which JSON does not have.
#pragma once

#include <string>
#include <string_view>

namespace gantry {

// Returns the text with {"__float__": "Infinity"} in place of each bare Infinity, as transformers 5 writes it. Strings
// stay as they are, and so does any other fault of the text.
std::string without_bare_infinity(std::string_view text);

}  // namespace gantry

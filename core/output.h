// What a command prints, all at once and checked: a full disk is an error, a reader that has left is none.
#pragma once

#include <string>

namespace gantry {

// Writes to stdout. ResourceError where it can't; quiet where the reader has closed its end of the pipe.
void print_output(const std::string& text);

}  // namespace gantry

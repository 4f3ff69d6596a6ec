// Writes the complete output of a command and checks for errors: a full disk is an error, a closed pipe is not.
#pragma once

#include <string>

namespace gantry {

// Writes to stdout. Throws ResourceError if that fails. Does nothing if the reader has closed its end of the pipe.
void print_output(const std::string& text);

}  // namespace gantry

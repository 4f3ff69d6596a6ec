// What the front end prints, all at once and checked: a full disk is an error, a reader that has left is none.
#pragma once

#include <string>

namespace gantry::cli {

// Writes to stdout. ResourceError where it can't; quiet where the reader has closed its end of the pipe.
void print_output(const std::string& text);

// The warning of a newer checkpoint that is not taken, `fault` saying why.
void warn_of_passed_over(const std::string& fault);

}  // namespace gantry::cli

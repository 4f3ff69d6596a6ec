// The errors that the sources throw, as text: the exit code, the failure, the expectation and the remedy. Values of a
// run are "...". If an expression chooses between texts, both are listed. For a function that only throws, such as
// refuse(path, what), the calls in the same file are listed.
#pragma once

#include <string>
#include <vector>

namespace gantry::testing {

struct ErrorLine {
  int exit_code = 0;
  std::string file;
  int line = 0;
  std::string what, expected, remedy;
};

// The errors of one source file, in the order of its lines.
std::vector<ErrorLine> error_lines(const std::string& file, const std::string& source);

// The text of a C++ expression: fmt::format("{} ranks", n) + " of " + name is "... ranks of ...".
std::string rendered(const std::string& expression);

}  // namespace gantry::testing

// The errors that the sources throw, as text: each with its exit code, what it says, what it expected and the remedy.
// Values of a run are "..."; of a choice between texts both are there. A function that does nothing but throw
// (refuse(path, what)) is followed to its calls in the same file.
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

// Of one source, in the order of its lines.
std::vector<ErrorLine> error_lines(const std::string& file, const std::string& source);

// A C++ expression that gives a text: fmt::format("{} ranks", n) + " of " + name is "... ranks of ...".
std::string rendered(const std::string& expression);

}  // namespace gantry::testing

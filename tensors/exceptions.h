// Converts an exception of a rank, of Gantry or of LibTorch, to an error line and an exit code.
#pragma once

#include <exception>
#include <string>

namespace gantry {

// The exit code of a rank that ends with an exception, and the error line that it prints.
struct Failure {
  int exit_code = 1;
  std::string line;
};
Failure describe_exception(std::exception_ptr exception);

}  // namespace gantry

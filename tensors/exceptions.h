// What is thrown on a rank, LibTorch's exceptions too, as the line and the exit code of its end.
#pragma once

#include <exception>
#include <string>

namespace gantry {

// An exception as an error's line and exit code.
struct Failure {
  int exit_code = 1;
  std::string line;
};
Failure describe_exception(std::exception_ptr exception);

}  // namespace gantry

// Replaces a child process by a program.
#pragma once

#include <string>
#include <unistd.h>
#include <vector>

namespace gantry::launcher {

// `words`: the program, which is found like in a shell, and its arguments. Returns only on failure, with
// errno set.
inline void exec_words(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
}

}  // namespace gantry::launcher

// The warnings of this process.
#pragma once

#include <functional>
#include <string>

namespace gantry {

// Prints "warning: LINE" to stderr, and passes LINE to all listeners. From any thread.
void print_warning(const std::string& line);

// Receives the warnings of all threads of this process, one at a time, during its lifetime.
class WarningListener {
 public:
  // `listen` must not throw or print warnings.
  explicit WarningListener(std::function<void(const std::string& line)> listen);
  ~WarningListener();
  WarningListener(const WarningListener&) = delete;
  WarningListener& operator=(const WarningListener&) = delete;

 private:
  std::function<void(const std::string& line)> listen_;
};

}  // namespace gantry

// A program that runs while the test goes on, to be signalled and waited for.
#pragma once

#include <functional>
#include <string>
#include <sys/types.h>

#include "program.h"

namespace gantry::testing {

class Background {
 public:
  // A shell command line, which the shell becomes (`exec`): signals go to the program itself.
  explicit Background(const std::string& command);
  ~Background();  // kills it where it still runs
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void signal(int number) const;
  // True once `condition` holds; false after `seconds`, or when the program has ended first.
  bool wait_until(const std::function<bool()>& condition, double seconds = 60);
  // Ends with 128 + the signal's number where a signal ended it, as a shell says it; 124 after `seconds`.
  Outcome wait(double seconds = 120);
  std::string err() const { return read_file(scratch_ / "err"); }

 private:
  bool has_ended();

  ScratchFolder scratch_;
  pid_t process_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

}  // namespace gantry::testing

// A program that runs in parallel to the test. The test can signal it and wait for it.
#pragma once

#include <functional>
#include <string>
#include <sys/types.h>

#include "program.h"

namespace gantry::testing {

class Background {
 public:
  // Starts a shell command line with `exec`, so that signals reach the program and not the shell.
  explicit Background(const std::string& command);
  ~Background();  // kills the program if it still runs
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void signal(int number) const;
  // Returns true once `condition` holds. Returns false after `seconds`, or if the program ends first.
  bool wait_until(const std::function<bool()>& condition, double seconds = 60);
  // Waits for the end. As in a shell, the exit code is 128 + N after signal N. It is 124 after `seconds`.
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

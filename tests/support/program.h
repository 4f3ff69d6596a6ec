// Runs a program and captures its output.
#pragma once

#include <string>

namespace gantry::testing {

struct Outcome {
  int exit_code = -1;
  std::string out, err;
};

// Runs a shell command line. Kills it after `seconds`; the exit code is then 124.
Outcome run_program(const std::string& command, int seconds = 120);

// The path of the built `gantry`.
std::string gantry_program();

// A directory for a test. The destructor removes it.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& bytes) const;  // returns the path

 private:
  std::string path_;
};

std::string read_file(const std::string& path);

// Text of `count` lower-case letters, the same in every run: letter i is number i * i % `period` of the alphabet.
std::string some_letters(int count, int period = 17);

// True if GANTRY_LONG=1 selects the form of a test that takes minutes.
bool is_long_form();

// Returns the path of a program that some machines lack, as the shell finds it. Empty if it does not exist.
std::string find_program(const std::string& name);

}  // namespace gantry::testing

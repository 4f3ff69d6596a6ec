// Runs a program and catches what it prints.
#pragma once

#include <string>

namespace gantry::testing {

struct Outcome {
  int exit_code = -1;
  std::string out, err;
};

// A shell command line; killed (exit code 124) after `seconds`.
Outcome run_program(const std::string& command, int seconds = 120);

// The built `gantry`, and a folder of this test's own that is removed at its end.
std::string gantry_program();

class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& bytes) const;  // gives its path

 private:
  std::string path_;
};

std::string read_file(const std::string& path);

// Text of `count` lower-case letters, the same in every run: letter i is number i * i % `period` of the alphabet.
std::string some_letters(int count, int period = 17);

// Whether GANTRY_LONG=1 asks for the form of a test that takes minutes.
bool is_long_form();

// A program of the machine's that not every one has, as the shell finds it; empty where there is none.
std::string find_program(const std::string& name);

}  // namespace gantry::testing

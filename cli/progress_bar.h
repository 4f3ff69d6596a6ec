// A progress bar: one line on stderr that is rewritten during long work. It is shown only on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace gantry::cli {

class ProgressBar {
 public:
  explicit ProgressBar(std::string label);  // "verifying"
  ~ProgressBar();                           // clears the line, so that it is also cleared before an error is printed
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(std::uint64_t done, std::uint64_t all);  // in bytes
  void show_steps(int done, int all);                // in steps
  // Returns show() as a function; empty if stderr is not a terminal.
  std::function<void(std::uint64_t done, std::uint64_t all)> function();

 private:
  void draw(double share, const std::string& of);

  std::string label_;
  bool is_shown_;
  std::chrono::steady_clock::time_point last_{};
};

// "12.3 MB", in powers of 1000.
std::string readable_bytes(std::uint64_t bytes);

}  // namespace gantry::cli

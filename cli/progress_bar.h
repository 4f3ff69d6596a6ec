// One line on stderr that is written over again while long work goes on. Only for people at a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace gantry::cli {

class ProgressBar {
 public:
  explicit ProgressBar(std::string label);  // "verifying"
  ~ProgressBar();                           // takes the line away: before an error is printed, too
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(std::uint64_t done, std::uint64_t all);  // bytes
  void show_steps(int done, int all);                // of work that is not counted in bytes
  // The same as a function, to hand on; empty where nobody watches.
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

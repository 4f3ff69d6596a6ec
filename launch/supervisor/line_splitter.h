// Splits output that arrives in pieces into complete lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gantry::launcher {

class LineSplitter {
 public:
  // Longer lines are split, so that a program that writes no newlines cannot fill the memory.
  static constexpr std::size_t kLongest = 1 << 20;

  // Returns the lines that these bytes complete, without their newlines.
  std::vector<std::string> add(std::string_view bytes);
  // Returns the remaining text without a newline: a last line, or nothing.
  std::vector<std::string> finish();

 private:
  std::string rest_;
};

}  // namespace gantry::launcher

// Output that comes in pieces, as whole lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gantry::launcher {

class LineSplitter {
 public:
  // Longer lines are split here, so that a program without newlines can't fill the memory.
  static constexpr std::size_t kLongest = 1 << 20;

  // The lines, without their newlines, that these bytes complete.
  std::vector<std::string> add(std::string_view bytes);
  // What is left without a newline: a last line, or nothing.
  std::vector<std::string> finish();

 private:
  std::string rest_;
};

}  // namespace gantry::launcher

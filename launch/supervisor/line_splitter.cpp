#include "gantry/launch/supervisor/line_splitter.h"

#include <utility>

namespace gantry::launcher {

std::vector<std::string> LineSplitter::add(std::string_view bytes) {
  std::vector<std::string> lines;
  for (std::size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
    lines.push_back(std::exchange(rest_, "").append(bytes.substr(0, end)));
    bytes.remove_prefix(end + 1);
  }
  rest_.append(bytes);
  if (rest_.size() >= kLongest) lines.push_back(std::exchange(rest_, ""));
  return lines;
}

std::vector<std::string> LineSplitter::finish() {
  std::vector<std::string> lines;
  if (!rest_.empty()) lines.push_back(std::exchange(rest_, ""));
  return lines;
}

}  // namespace gantry::launcher

#include "gantry/core/error.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace gantry {

std::string format_error(const ErrorText& text) {
  std::string line = text.where;
  if (!text.what.empty()) line += (line.empty() ? "" : ": ") + text.what;
  if (!text.expected.empty()) line += "; expected " + text.expected;
  if (!text.remedy.empty()) line += "; " + text.remedy;
  // One line without control characters, which a terminal would interpret.
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 32 || c == 127; }, ' ');
  return line;
}

int edit_distance(const std::string& a, const std::string& b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace gantry

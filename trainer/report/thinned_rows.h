// A table of numbers that grows by one row per step and keeps a few thousand rows for a page. Memory does not
// grow with the run.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gantry {

// If there are more than kMost rows, they are divided into stretches. Each stretch keeps its last row and,
// for each spike column, the row with the largest value, so that spikes remain visible. A value that is not a
// number is null and counts as the largest.
class ThinnedRows {
 public:
  static constexpr std::size_t kMost = 4000;

  // `spikes`: some of the columns.
  ThinnedRows(std::vector<std::string> columns, const std::vector<std::string>& spikes);

  void add(const nlohmann::json& line);  // an object
  std::size_t kept() const { return kept_; }
  // Returns one array per column with the values of the kept rows, in order.
  nlohmann::json columns() const;

 private:
  struct Row {
    std::vector<nlohmann::json> values;  // by column
  };
  struct Stretch {
    std::int64_t length = 0;  // in rows
    std::vector<Row> rows;    // the kept rows, each once, in order
  };

  Stretch joined(Stretch first, Stretch second) const;
  void halve();

  std::vector<std::string> columns_;
  std::vector<std::size_t> spikes_;  // indices of the spike columns
  std::vector<Stretch> stretches_;   // the last stretch may be shorter
  std::int64_t longest_ = 1;         // steps in a complete stretch
  std::size_t kept_ = 0;
};

}  // namespace gantry

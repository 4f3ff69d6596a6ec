// A table of numbers that grows by a row a step, of which a page shows a few thousand rows: memory does not grow with
// the run.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gantry {

// Where there are more rows than it keeps, each stretch of them has its last one and those with the largest value of
// the columns of spikes, so that spikes stay to be seen. What is no number is null, and counts as the largest.
class ThinnedRows {
 public:
  static constexpr std::size_t kMost = 4000;

  // `spikes`: some of the columns.
  ThinnedRows(std::vector<std::string> columns, const std::vector<std::string>& spikes);

  void add(const nlohmann::json& line);  // an object
  std::size_t kept() const { return kept_; }
  // An array for each column, of the rows that were kept, in order.
  nlohmann::json columns() const;

 private:
  struct Row {
    std::vector<nlohmann::json> values;  // by column
  };
  struct Stretch {
    std::int64_t length = 0;  // in rows
    std::vector<Row> rows;    // those that are kept, each once, in order
  };

  Stretch joined(Stretch first, Stretch second) const;
  void halve();

  std::vector<std::string> columns_;
  std::vector<std::size_t> spikes_;  // their places among the columns
  std::vector<Stretch> stretches_;   // the last may be shorter
  std::int64_t longest_ = 1;         // of a whole stretch
  std::size_t kept_ = 0;
};

}  // namespace gantry

// Reads a run's output directory (metrics.jsonl, config.yaml and report.json) as the data of the report's
// page.
#pragma once

#include <cstdint>
#include <istream>
#include <nlohmann/json.hpp>
#include <string>

#include "gantry/trainer/report/expert_history.h"
#include "gantry/trainer/report/thinned_rows.h"

namespace gantry {

class RunReader {
 public:
  explicit RunReader(std::string folder);

  // Reads the lines that were added to metrics.jsonl since the last call, and the other files in full.
  // docs/monitoring.md lists the keys. A line that is not a JSON object with a step is skipped and counted; a
  // value that is not a number is null. If another run has rewritten metrics.jsonl, the data of the earlier
  // calls are dropped. Memory does not grow with the run.
  // The data of a live run are visible to every client of its status server. The name is therefore the last
  // part of the directory's path, and the configuration has no paths, addresses or secrets.
  // Throws InputError for a directory without metrics.jsonl, unless the run is live, and for an invalid
  // report.json.
  nlohmann::json data(bool live);

 private:
  void read_metrics(bool live);
  bool continues(std::istream& file) const;
  void read_line(const std::string& line);
  std::string folder_;
  std::uint64_t offset_ = 0;  // position in metrics.jsonl of the first unread line
  std::string last_line_;     // the last line before offset_
  std::int64_t skipped_ = 0;
  ThinnedRows steps_, rewards_, images_, evaluations_;
  ExpertHistory experts_;
  nlohmann::json answers_;                          // scores and continued prompts of the last evaluation
  nlohmann::json peaks_ = nlohmann::json::array();  // memory peaks of the last step
};

// Returns the page as one HTML file that needs no other files. `data`: the result of RunReader::data(), which
// is escaped.
std::string report_page(const nlohmann::json& data);

// Writes the page of FOLDER durably to `output` or, if it is empty, to FOLDER/report.html. Returns the path.
std::string write_report(const std::string& folder, const std::string& output = "");

}  // namespace gantry

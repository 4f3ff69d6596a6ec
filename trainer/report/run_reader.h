// A run's output folder as the data of the report's page: metrics.jsonl, config.yaml and report.json.
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

  // Reads what metrics.jsonl got since the last call, and the other files anew; docs/monitoring.md has the keys. A line
  // that is no JSON object is passed over and counted; a value that is not finite is null. InputError for a folder
  // without metrics.jsonl, unless the run is live, and for a report.json that is none. Of a metrics.jsonl that another
  // run has begun anew, nothing that was read before stays. What a live run shows goes to whoever may ask it: its name
  // is the folder's last part, and its configuration is without paths, addresses and secrets. Memory does not
  // grow with the run.
  nlohmann::json data(bool live);

 private:
  void read_metrics(bool live);
  bool continues(std::istream& file) const;
  void read_line(const std::string& line);
  std::string folder_;
  std::uint64_t offset_ = 0;  // of the first line of metrics.jsonl that was not read yet
  std::string last_line_;     // that was read, which ends before it
  std::int64_t skipped_ = 0;
  ThinnedRows steps_, rewards_, images_, evaluations_;
  ExpertHistory experts_;
  nlohmann::json answers_;                          // of the last evaluation: choices and continued prompts
  nlohmann::json peaks_ = nlohmann::json::array();  // of the last step
};

// The page: one file that needs no other. `data` as of RunReader; everything in it is escaped.
std::string report_page(const nlohmann::json& data);

// Writes FOLDER's page to `output`, durably; where that is empty, to FOLDER/report.html. Gives its path.
std::string write_report(const std::string& folder, const std::string& output = "");

}  // namespace gantry

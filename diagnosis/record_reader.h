// Reads the files of flight recorders, described in docs/design/communication.md. They may be truncated, damaged or
// hostile, so every value is checked.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "gantry/diagnosis/record.h"

namespace gantry::recorder {

// Throws InputError with `path` and the fault. Control characters in the strings of the result are replaced by blanks.
RankRecord parse_record(std::string_view text, const std::string& path);

// The files of one job, by rank.
struct JobRecords {
  int ranks = 0;                      // number of ranks of the job
  std::map<int, RankRecord> records;  // records by rank, for the ranks that left a file
  int other_jobs = 0;                 // number of files of other jobs, which are left out
};

// Reads `folder`, or its subdirectory "recorder". If it has files of several jobs, reads those of the job that wrote
// last. Throws InputError for a folder without records, and for any invalid file rank-*.json.
JobRecords read_folder(const std::string& folder);

}  // namespace gantry::recorder

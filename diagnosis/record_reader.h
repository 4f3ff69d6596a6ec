// The files of flight recorders, described in docs/design/communication.md. They may be cut, damaged or hostile: the
// reader believes nothing.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "gantry/diagnosis/record.h"

namespace gantry::recorder {

// InputError that names `path` and what is wrong with it. In the texts of the result control characters are blanks.
RankRecord parse_record(std::string_view text, const std::string& path);

// The files of one job, by rank.
struct JobRecords {
  int ranks = 0;                      // of the job
  std::map<int, RankRecord> records;  // by rank, of those that left a file
  int other_jobs = 0;                 // files of other jobs, which are left out
};

// Reads `folder`, or its folder "recorder". Where files of several jobs lie there, of the one that wrote last.
// InputError for a folder without records, and for any file rank-*.json that is no sound one.
JobRecords read_folder(const std::string& folder);

}  // namespace gantry::recorder

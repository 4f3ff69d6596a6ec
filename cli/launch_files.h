// What a launch knows of the files of the run that it supervises.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gantry::cli {

struct RunFiles {
  std::string checkpoints;  // the folder where it saves; empty: nowhere, or unknown
  std::string output;       // the folder of metrics.jsonl; likewise
};

// Of a `gantry train CONFIG ...` from its configuration, of any other program what `checkpoints` says. ConfigError for
// a configuration that is wrong; CheckpointError where the run would begin beside complete checkpoints of an earlier
// one, which a restart would take for its own.
RunFiles find_run_files(const std::vector<std::string>& program, const std::string& checkpoints);

// The last step that was done: of metrics.jsonl, or else of the newest complete checkpoint.
std::optional<std::int64_t> last_step(const RunFiles& files);

}  // namespace gantry::cli

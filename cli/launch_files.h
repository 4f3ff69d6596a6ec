// The files of the run that a launch supervises.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gantry::cli {

struct RunFiles {
  std::string checkpoints;  // checkpoint directory; empty: none, or unknown
  std::string output;       // directory of metrics.jsonl; empty: none, or unknown
};

// Returns the files of `gantry train CONFIG ...` from its configuration. For any other program, `checkpoints` is its
// checkpoint directory. Throws ConfigError if the configuration is wrong.
RunFiles run_files(const std::vector<std::string>& program, const std::string& checkpoints);
// The same for a job with restarts. Also throws CheckpointError if the checkpoint directory has complete checkpoints of
// an earlier run, because a restart would resume from them.
RunFiles find_run_files(const std::vector<std::string>& program, const std::string& checkpoints);

// Returns the last completed step, from metrics.jsonl or else from the newest complete checkpoint.
std::optional<std::int64_t> last_step(const RunFiles& files);

// Returns the newest complete checkpoint; "" if there is none.
std::string newest_checkpoint(const RunFiles& files);

}  // namespace gantry::cli

// Keeps the files of an earlier run in an output directory. A new run there never destroys them, even if it
// is killed at any time or the disk is full.
#pragma once

#include <cstdint>
#include <string>

#include "gantry/core/io/durable_file.h"

namespace gantry {

// For a run that starts from scratch. If the directory has the metrics or events of another run, all files of
// that run are renamed: metrics.1.jsonl, config.1.yaml, report.1.html, the directory tensorboard.1 and so on,
// with the first free number. Returns the new path of the metrics, or "" without metrics. Throws
// ResourceError.
std::string keep_earlier_run(const std::string& output, FileSystem& files = system_files());

struct KeptMetrics {
  std::string kept_as;           // the path of the lines of later steps, or ""
  bool owes_evaluation = false;  // the file has the last step, but no evaluation of it
};

// For a run that resumes after `last_step`: metrics.jsonl keeps the lines up to this step. Lines of later
// steps, which are trained again, are moved to a separate file (metrics.1.jsonl, ...). An incomplete last
// line of a killed run is dropped. Throws ResourceError; metrics.jsonl is then unchanged.
KeptMetrics keep_metrics_until(const std::string& output, std::int64_t last_step, FileSystem& files = system_files());

// Returns whether metrics.jsonl has a training line for this step.
bool has_metrics_of(const std::string& output, std::int64_t step);

}  // namespace gantry

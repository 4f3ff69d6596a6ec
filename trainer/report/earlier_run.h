// What an output folder has of an earlier run: nothing of it is lost to the run that writes there now, whenever that is
// killed or the disk is full.
#pragma once

#include <cstdint>
#include <string>

#include "gantry/core/io/durable_file.h"

namespace gantry {

// For a run that begins anew. Where the folder has metrics of another run, those and what belongs to them get names of
// their own: metrics.1.jsonl, config.1.yaml, report.1.html, the folder tensorboard.1 and so on, with the first number
// that is free. Gives the path of the metrics, or "". ResourceError.
std::string keep_earlier_run(const std::string& output, FileSystem& files = system_files());

struct KeptMetrics {
  std::string kept_as;           // the path of the lines of later steps, or ""
  bool owes_evaluation = false;  // the last step is there, and no evaluation of it
};

// For a run that goes on after `last_step`: metrics.jsonl keeps the lines up to it. Lines of later steps, which are
// trained again, go to a file of their own (metrics.1.jsonl, ...); half a line that a killed run has left is dropped.
// ResourceError, and then metrics.jsonl is as it was.
KeptMetrics keep_metrics_until(const std::string& output, std::int64_t last_step, FileSystem& files = system_files());

// Whether metrics.jsonl has a line of training for this step.
bool has_metrics_of(const std::string& output, std::int64_t step);

}  // namespace gantry

// A step as it was predicted beside how it was measured, part by part; and as JSON, in a run's report.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gantry/planner/estimate.h"

namespace gantry::planner {

// "compute", "tensor", ... with their seconds, in the order in which they are shown.
std::vector<std::pair<const char*, double>> parts_of(const Seconds& seconds);

struct StepFacts {
  Seconds seconds;                   // they add up to the step
  std::vector<double> memory_bytes;  // of each pipeline rank, the most at once
};
StepFacts facts_of(const Estimate& estimate);

struct Gap {
  std::string part;  // "compute", ..., "memory" (of the fullest pipeline rank, in bytes)
  double predicted = 0, measured = 0;
  double share = 0;  // of the measured step, or of the measured memory: how much they differ
};
// The largest first; parts that are nowhere are left out.
std::vector<Gap> gaps(const StepFacts& predicted, const StepFacts& measured);
// "compute: 0.31 s predicted, 0.42 s measured".
std::string describe(const Gap& gap);

// {"step_seconds", "seconds": {of each part}, "memory_bytes"}.
nlohmann::ordered_json to_json(const StepFacts& facts);
// The seconds of such an object. InputError where it is none, naming `where`.
Seconds seconds_of_json(const nlohmann::json& facts, const std::string& where);

}  // namespace gantry::planner

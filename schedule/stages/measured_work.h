// The measured work of each layer, from the report.json of an earlier run. `schedule.layers: {balanced: DIRECTORY}`
// uses it as weights.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "gantry/schedule/layer_work.h"

namespace gantry {

// {"layers": [...], "first": ..., "last": ...}: milliseconds for the forward and backward pass of one microbatch.
nlohmann::ordered_json to_json(const LayerWork& measured);

// Reads the entry "layer_times" of FOLDER/report.json. Throws ConfigError if the file or the entry does not exist, or
// if it has values that are not times.
LayerWork read_measured_work(const std::string& folder);

}  // namespace gantry

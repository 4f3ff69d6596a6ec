// The work of layers as a run has measured it: an entry of its report.json, which the next run's `schedule.layers:
// {balanced: FOLDER}` weighs by.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "gantry/core/layer_work.h"

namespace gantry {

// {"layers": [...], "first": ..., "last": ...}, in milliseconds of a microbatch's forward and backward.
nlohmann::ordered_json to_json(const LayerWork& measured);

// Of FOLDER/report.json, its entry "layer_times". ConfigError where there is no such file or entry, or numbers that no
// time can be.
LayerWork read_measured_work(const std::string& folder);

}  // namespace gantry

// What a schedule section leaves open, decided in one place: `gantry config` shows what the plugin will do.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/core/layer_work.h"

namespace gantry {

// The microbatches of one replica's samples, each at least one sample: as stated, else twice as many as stages, and 1
// without a pipeline. 0 only where there are no samples.
int microbatch_count(const ScheduleConfig& schedule, int stages, std::int64_t replica_samples);

// The layers that a model's own keys (Hugging Face's) state; 0 if they state none.
int layers_in(const nlohmann::json& model_keys);

// True for `balanced`, by whatever it weighs.
bool is_balanced(const ScheduleConfig& schedule);
// The run's folder of `balanced: runs/x`; absent where nothing was measured.
std::optional<std::string> measured_run(const ScheduleConfig& schedule);

// What `balanced` weighs: `work`, or in its place the times that the named run has measured (core/measured_work.h), of
// as many layers.
LayerWork weighed_work(const ScheduleConfig& schedule, const LayerWork& work);

// Layers per stage as `schedule.layers` says; only `balanced` looks at more than the number of layers. ConfigError
// where they can't be distributed, as of distribute_layers, distribute_by_work and weighed_work.
std::vector<int> layers_per_stage(const ScheduleConfig& schedule, const LayerWork& work,
                                  const std::vector<int>& rank_of_stage);

}  // namespace gantry

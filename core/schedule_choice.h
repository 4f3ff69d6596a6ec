// Resolves the defaults of the schedule section in one place, so that `gantry config` prints what the plugin will use.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/core/layer_work.h"

namespace gantry {

// The number of microbatches for the samples of one replica; each has at least one sample. The configured number, by
// default twice the number of stages, or 1 without a pipeline. 0 only if there are no samples.
int microbatch_count(const ScheduleOptions& schedule, int stages, std::int64_t replica_samples);

// The number of layers in the model's own (Hugging Face) keys; 0 if they have none.
int layers_in(const nlohmann::json& model_keys);

// True for `balanced`, with computed or measured work.
bool is_balanced(const ScheduleOptions& schedule);
// The directory in `balanced: runs/x`; absent without measured work.
std::optional<std::string> measured_run(const ScheduleOptions& schedule);

// The work that `balanced` uses: `work`, or the times that the named run measured (core/measured_work.h) for the same
// number of layers.
LayerWork weighed_work(const ScheduleOptions& schedule, const LayerWork& work);

// Layers per stage for `schedule.layers`; only `balanced` uses more than the number of layers. Throws ConfigError if
// they cannot be distributed; see distribute_layers, distribute_by_work and weighed_work.
std::vector<int> layers_per_stage(const ScheduleOptions& schedule, const LayerWork& work,
                                  const std::vector<int>& rank_of_stage);

}  // namespace gantry

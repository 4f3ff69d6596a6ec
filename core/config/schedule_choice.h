// Resolves the defaults of the schedule section in one place, so that `gantry config` prints what the plugin will use.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "gantry/core/config.h"

namespace gantry {

// The number of microbatches for the samples of one replica; each has at least one sample. The configured number, by
// default twice the number of stages, or 1 without a pipeline. 0 only if there are no samples.
int microbatch_count(const ScheduleOptions& schedule, int stages, std::int64_t replica_samples);

// The number of layers in the model's own (Hugging Face) keys, with those of multi-token prediction; 0 if they have
// none.
int layers_in(const nlohmann::json& model_keys);
// The number of layers of multi-token prediction, which the model has if mtp_loss_scaling_factor is above 0.
int mtp_layers_in(const nlohmann::json& model_keys);

// True for `balanced`, with computed or measured work.
bool is_balanced(const ScheduleOptions& schedule);
// The directory in `balanced: runs/x`; absent without measured work.
std::optional<std::string> measured_run(const ScheduleOptions& schedule);

}  // namespace gantry

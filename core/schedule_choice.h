// What a schedule section leaves open, decided in one place: `gantry config` shows what the plugin will do.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "gantry/core/config.h"

namespace gantry {

// The microbatches of one replica's samples, each at least one sample: as stated, else twice as many as stages, and 1
// without a pipeline. 0 only where there are no samples.
int microbatch_count(const ScheduleConfig& schedule, int stages, std::int64_t replica_samples);

// The layers that a model's own keys (Hugging Face's) state; 0 if they state none.
int layers_in(const nlohmann::json& model_keys);

// What the first and the last stage do besides their layers, in units of one layer's time. Looking up embeddings is
// cheap; the head's matrix product may cost as much as several layers.
struct EndCosts {
  double embedding = 0.1;
  double head = 1;
};

// Estimated by multiplications, of which a matrix makes one for each weight and token: of the head's matrix, and of
// those of one layer. The defaults where a number is not above 0.
EndCosts estimate_end_costs(double head_weights, double layer_weights);

// The same from a model's own keys (Hugging Face's); the defaults where they don't state its sizes.
EndCosts end_costs_in(const nlohmann::json& model_keys);

// Layers per stage as `schedule.layers` says; `costs` are for `balanced`. ConfigError where they can't be dealt, as of
// distribute_layers.
std::vector<int> layers_per_stage(const ScheduleConfig& schedule, int layers, int stages, const EndCosts& costs = {});

}  // namespace gantry

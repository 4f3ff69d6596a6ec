// save_parallelized, from_parallelized and deparallelize for boosted models and for those of initialize():
// checkpoint/parallelized.h says what the files are. And the weights of a Hugging Face directory for the latter.
#pragma once

#include "gantry/booster/initialize.h"
#include "gantry/checkpoint/parallelized.h"
#include "gantry/plugins/hybrid_parallel_plugin.h"

namespace gantry {

// A boosted model; its family and keys are those of the resolved `config`. Collective over the world, as all of these.
void save_parallelized(const std::string& directory, const Boosted& boosted, HybridParallelPlugin& plugin,
                       const Config& config, bool merge = false);
void from_parallelized(const std::string& directory, Boosted& boosted, HybridParallelPlugin& plugin);
// Copies the whole weights into `dense`, an unsplit model of the same class, on every rank.
void deparallelize(const Boosted& boosted, HybridParallelPlugin& plugin, torch::nn::Module& dense);

// Fills what initialize() has split from the Hugging Face directory model.path of the resolved configuration, each rank
// reading what it holds: what load_weights of recipe.h does for a boosted model. Nothing without a path. InputError.
std::vector<std::string> load_weights(const Config& config, torch::nn::Module& model, const TensorParallelModel& split);

// A model that initialize() has split. `config` is written as config.json; with `family` as its keys.
void save_parallelized(const std::string& directory, torch::nn::Module& model, const TensorParallelModel& split,
                       const nlohmann::json& config, const ParallelizedOptions& options = {});
void from_parallelized(const std::string& directory, torch::nn::Module& model, const TensorParallelModel& split);
void deparallelize(torch::nn::Module& model, const TensorParallelModel& split, torch::nn::Module& dense);

}  // namespace gantry

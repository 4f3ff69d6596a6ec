// save_parallelized, from_parallelized and deparallelize of boosted models, those of initialize() too:
// checkpoint/parallelized.h says what the files are.
#pragma once

#include "gantry/checkpoint/parallelized.h"
#include "gantry/plugins/plugin.h"

namespace gantry {

// `config` is written as config.json; with options.family as that family's keys. Collective over the world, as all of
// these; `plugin` is the one that boosted the model.
void save_parallelized(const std::string& directory, const Boosted& boosted, Plugin& plugin,
                       const nlohmann::json& config, const ParallelizedOptions& options = {});
// The same with the family and the keys of the resolved `config`.
void save_parallelized(const std::string& directory, const Boosted& boosted, Plugin& plugin, const Config& config,
                       bool merge = false);
// Fills the boosted model from such a directory, whatever layout wrote it; optimizers go on from these weights.
// InputError as of checkpoint/parallelized.h.
void from_parallelized(const std::string& directory, Boosted& boosted, Plugin& plugin);
// Copies the whole weights into `dense`, an unsplit model of the same class, on every rank. UsageError for another one.
void deparallelize(const Boosted& boosted, Plugin& plugin, torch::nn::Module& dense);

}  // namespace gantry

// save_parallelized, from_parallelized and deparallelize for boosted models, including those of initialize(). For the
// file format, see checkpoint/parallelized.h. `plugin` is the plugin that boosted the model. All functions are
// collective over the world.
#pragma once

#include "gantry/checkpoint/parallelized.h"
#include "gantry/plugins/plugin.h"

namespace gantry {

// Writes the model to `directory`, with `config` as config.json. If options.family is set, `config` has the keys of
// this family.
void save_parallelized(const std::string& directory, const Boosted& boosted, Plugin& plugin,
                       const nlohmann::json& config, const ParallelizedOptions& options = {});
// The same with the family and the model keys of the resolved `config`.
void save_parallelized(const std::string& directory, const Boosted& boosted, Plugin& plugin, const Config& config,
                       bool merge = false);
// Loads the weights from a directory that was written in any layout. Optimizers continue from these weights. Throws
// InputError as described in checkpoint/parallelized.h.
void from_parallelized(const std::string& directory, Boosted& boosted, Plugin& plugin);
// Copies the full weights into `dense`, an unsharded model of the same class, on every rank. Throws UsageError if its
// parameters differ.
void deparallelize(const Boosted& boosted, Plugin& plugin, torch::nn::Module& dense);

}  // namespace gantry

// Boosting one model: shards it, and prepares its optimizer, criterion and loader for training.
#pragma once

#include <memory>

#include "gantry/data/data_loader.h"
#include "gantry/plugins/model_state.h"

namespace gantry {

struct BoostedParts {
  std::shared_ptr<ModelState> state;
  Boosted handles;
};

// For the contract, see Plugin::boost(). Collective over the world.
BoostedParts boost_model(const std::shared_ptr<PluginContext>& context, const BoostRequest& request);

// For the contract, see Plugin::distribute(). Collective over pp.
void distribute(DataLoader& loader, const StageModule& module, const PluginContext& plugin);

}  // namespace gantry

// The model, optimizer, data and criterion of a run. Parts that the program does not provide are created from
// the configuration.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gantry/booster/booster.h"
#include "gantry/booster/recipe.h"
#include "gantry/comm/world.h"
#include "gantry/plugins/objective_parts.h"
#include "gantry/trainer/trainer.h"

namespace gantry {

struct RunParts {
  std::shared_ptr<torch::nn::Module> model;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  std::shared_ptr<DataLoader> loader, held_out;  // held_out is null without evaluation
  Criterion criterion;
  ObjectiveParts objective;  // for train.objective
  Predictions predictions;   // kind of predictions that evaluations score
  std::optional<LrSchedule> rates;
};

// Writes the values that the program's parts determine (model.policy, evaluation.every) to `config`, and
// replaces train.epochs by train.steps. Throws UsageError for an optimizer without its model, and the errors
// of recipe.h. Collective over the world.
RunParts assemble_parts(const TrainerParts& given, Config& config, const World& world, const ProcessGroupMesh& mesh);

}  // namespace gantry

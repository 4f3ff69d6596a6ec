// What a run trains, and on what: the program's parts, and the configuration's in place of those that it leaves out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gantry/booster/booster.h"
#include "gantry/comm/world.h"
#include "gantry/trainer/trainer.h"

namespace gantry {

struct RunParts {
  std::shared_ptr<torch::nn::Module> model;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  std::shared_ptr<DataLoader> loader, held_out;  // null: nothing is evaluated
  Criterion criterion;
  ObjectiveParts objective;  // with train.objective
  Predictions predictions;   // that evaluations score
  std::optional<LrSchedule> rates;
};

// Says in `config` what the program's parts decide (model.policy, evaluation.every), and train.epochs as train.steps.
// UsageError for an optimizer without its model; errors as of recipe.h. Collective over the world.
RunParts assemble_parts(const TrainerParts& given, Config& config, const World& world, const ProcessGroupMesh& mesh);

}  // namespace gantry

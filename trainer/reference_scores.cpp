#include "gantry/trainer/reference_scores.h"

#include <fmt/format.h>
#include <limits>

#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// Loads the reference weights. Without files the model has its initial weights, and no adapters that change them.
void load_reference(const Config& config, Boosted& boosted, const ProcessGroupMesh& mesh) {
  Config reference = config;
  if (const std::string& folder = config.train.objective.reference; !folder.empty()) {
    if (config.model.path.empty())
      throw ConfigError({"train.objective.reference", "the model has no model.path, whose form the reference has",
                         "model.path", "set model.path, or remove the key"});
    reference.model.path = folder;
  } else if (!config.checkpoint.load.empty()) {
    throw ConfigError({"checkpoint.load", "the reference model cannot be a checkpoint",
                       "the directory of a model in train.objective.reference",
                       "export the checkpoint with gantry checkpoint export, and set model.path"});
  }
  reference.lora.path.clear();
  load_weights(reference, boosted, mesh);
}

}  // namespace

void score_reference(const Config& config, Booster& booster, Boosted& boosted, const DataLoader* held_out,
                     const std::shared_ptr<ReferenceScores>& scores) {
  load_reference(config, boosted, booster.mesh());
  const auto in_order = [&](SampleSource source) {
    return DataLoader(std::move(source), {.global_batch = config.data.batch_size, .shuffle = false, .keep_last = true});
  };
  std::vector<DataLoader> loaders;
  loaders.push_back(in_order(build_samples(config)));
  if (held_out) loaders.push_back(in_order(build_evaluation_samples(config)));
  for (auto& loader : loaders) booster.distribute(loader, boosted);
  std::int64_t pairs = 0;
  for (const auto& loader : loaders) pairs += loader.samples();
  scores->trained = loaders.front().samples();
  scores->scores = torch::full({pairs, 2}, -std::numeric_limits<double>::infinity(), torch::kFloat64);
  const Criterion criterion = preference_scores(scores);
  for (auto& loader : loaders)
    for (std::int64_t i = 0; i < loader.steps(); ++i)
      booster.execute_pipeline(loader.batch(i), boosted,
                               {.broadcast_loss = true, .forward_only = true, .criterion = criterion});
  // A rank has the scores of its own pairs, and -infinity for the others.
  booster.mesh().world_group().all_reduce(scores->scores, ReduceOp::kMax).wait();
  if (booster.mesh().rank() == 0) fmt::print("reference: log-probabilities of {} pairs of completions\n", pairs);
}

}  // namespace gantry

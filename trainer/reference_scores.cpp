#include "gantry/trainer/reference_scores.h"

#include <fmt/format.h>
#include <limits>

#include "gantry/booster/preference_step.h"
#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// Loads the reference weights: those of the run before its first step, with the adapters of lora.path, or those of
// train.objective.reference, with new adapters, which change nothing.
void load_reference(const Config& config, Boosted& boosted, const ProcessGroupMesh& mesh) {
  Config reference = config;
  if (const std::string& folder = config.train.objective.reference; !folder.empty()) {
    if (config.model.path.empty())
      throw ConfigError({"train.objective.reference", "the model has no model.path, whose form the reference has",
                         "model.path", "set model.path, or remove the key"});
    reference.model.path = folder;
    reference.lora.path.clear();
  } else if (!config.checkpoint.load.empty()) {
    throw ConfigError({"checkpoint.load", "the reference model cannot be a checkpoint",
                       "the directory of a model in train.objective.reference",
                       "export the checkpoint with gantry checkpoint export, and set model.path"});
  }
  load_weights(reference, boosted, mesh);
}

void score(Booster& booster, const Batch& batch, Boosted& boosted, const Criterion& criterion) {
  booster.execute_pipeline(batch, boosted, {.broadcast_loss = true, .forward_only = true, .criterion = criterion});
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
  std::int64_t samples = 0;
  for (const auto& loader : loaders) samples += loader.samples();
  scores->trained = loaders.front().samples();
  scores->scores = torch::full({samples, 2}, -std::numeric_limits<double>::infinity(), torch::kFloat64);
  const bool are_pairs = config.train.objective.name != "kto";
  for (const auto& loader : loaders)
    for (std::int64_t i = 0; i < loader.steps(); ++i) {
      const Batch batch = loader.batch(i);
      score(booster, batch, boosted, preference_scores(scores));
      if (!are_pairs) score(booster, with_other_completions(batch), boosted, preference_scores(scores, 1));
    }
  // A rank has the scores of its own samples, and -infinity for the others.
  booster.mesh().world_group().all_reduce(scores->scores, ReduceOp::kMax).wait();
  if (booster.mesh().rank() == 0)
    fmt::print("reference: log-probabilities of {} {}\n", samples, are_pairs ? "pairs of completions" : "completions");
}

}  // namespace gantry

#include "gantry/generation/generate.h"

#include "gantry/core/error.h"
#include "gantry/generation/languages.h"
#include "gantry/generation/rounds.h"
#include "gantry/plugins/model_setup.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using generation::Plan;
using generation::StagePlaces;

// Returns the split of the logits over tp; not split without an entry of the policy.
SplitDim split_of_logits(const SplitOutputs& outputs) {
  const auto found = outputs.find("logits");
  return found == outputs.end() ? SplitDim{nullptr, replicate()} : found->second;
}

// Partitions the prompts over the replicas, and returns all sequences on every rank.
std::vector<GeneratedSequence> run_over_replicas(Boosted& boosted, Plugin& plugin, const Continuation& continuation,
                                                 const Plan& plan, const std::vector<TokenIds>& prompts) {
  const StageModule& module = boosted.model->stage_module_unmaterialized();
  const auto& mesh = plugin.mesh();
  const bool by_sequence = plugin.options().axes.tensor.sequence_parallel && mesh.size(axis::kTensor) > 1;
  const bool is_cached = continuation.is_cached && plan.options.use_cache && !by_sequence;
  if (!plan.images.empty() && by_sequence)
    throw ConfigError({"parallel.sequence_parallel", "the prompts have images, but there is no cache", "false",
                       "remove parallel.sequence_parallel to generate from images"});
  const auto parts = split_evenly(static_cast<std::int64_t>(prompts.size()), mesh.size(axis::kData));
  StagePlaces places{.module = &module,
                     .stages = &plugin.stages(),
                     .pipeline = &mesh[axis::kPipeline],
                     .split = split_of_logits(plugin.split_outputs(boosted)),
                     .is_cached = is_cached,
                     .is_split_by_sequence = by_sequence,
                     .sharing = mesh.mesh().ranks_of_sequence() > 1 ? &mesh[axis::kContext] : nullptr,
                     .parts = is_cached ? plugin.sequence_parts(boosted) : nullptr};
  if (mesh.mesh().has_expert_view()) {
    places.replicas = &mesh.batch_group();
    places.most_prompts = parts.front().second;
  }
  const auto replica = static_cast<std::size_t>(mesh.coordinate(axis::kData));
  const auto [begin, end] = replica < parts.size() ? parts[replica] : std::pair<std::int64_t, std::int64_t>();
  const std::string mine = generation::to_text(
      generation::run_rounds(places, plan, {prompts.begin() + begin, prompts.begin() + end}, begin));
  std::vector<GeneratedSequence> all;
  for (int from = 0; from < mesh.size(axis::kData); ++from)
    for (auto& sequence : generation::from_text(broadcast_text(mesh[axis::kData], mine, from)))
      all.push_back(std::move(sequence));
  return all;
}

}  // namespace

std::vector<GeneratedSequence> generate(Boosted& boosted, Plugin& plugin, const std::vector<TokenIds>& given,
                                        const GenerationOptions& options) {
  const StageModule& module = boosted.model->stage_module_unmaterialized();
  if (module.vocabulary())
    throw ConfigError({"parallel.vocabulary", "pipeline does not support generation", "stages",
                       "remove parallel.vocabulary to generate, because a checkpoint loads in any layout"});
  const Continuation continuation = module.split().continuation;
  if (boosted.optimizer) boosted.optimizer->wait();
  const EvaluationGuard evaluation(module.module(), true);
  const auto run = [&](const Plan& plan, const std::vector<TokenIds>& prompts) {
    return run_over_replicas(boosted, plugin, continuation, plan, prompts);
  };
  return generation::generate_by(run, given, options, continuation, module.policy().name());
}

std::vector<GeneratedSequence> generate(torch::nn::Module& model, const std::vector<TokenIds>& given,
                                        const GenerationOptions& options) {
  static const PipelineStageManager kOneStage(0, 1);
  const auto policy = policy_for(model);
  const EvaluationGuard evaluation(model, true);
  const StageModule module(model.shared_from_this(), policy, {{0, layer_count(*policy, model)}});
  const Continuation continuation = module.split().continuation;
  const StagePlaces places{.module = &module,
                           .stages = &kOneStage,
                           .split = {nullptr, replicate()},
                           .is_cached = continuation.is_cached && options.use_cache};
  const auto run = [&](const Plan& plan, const std::vector<TokenIds>& prompts) {
    return generation::run_rounds(places, plan, prompts, 0);
  };
  return generation::generate_by(run, given, options, continuation, policy->name());
}

}  // namespace gantry

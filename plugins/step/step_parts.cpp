#include "gantry/plugins/step/step_parts.h"

#include "gantry/core/error.h"
#include "gantry/plugins/step/gathered_part.h"
#include "gantry/plugins/step/gradient_parts.h"
#include "gantry/plugins/step/interleaved_part.h"
#include "gantry/plugins/step/observed_part.h"
#include "gantry/plugins/step/offloaded_part.h"
#include "gantry/plugins/step/recorded_part.h"
#include "gantry/plugins/step/timed_part.h"
#include "gantry/plugins/step/vocabulary_part.h"

namespace gantry {
namespace {

using Scattering = CallPlan::Scattering;

std::set<std::pair<int, int>> split_backwards(const std::vector<schedule::Action>& row) {
  std::set<std::pair<int, int>> split;
  for (const schedule::Action& action : row)
    if (action.kind == schedule::ActionKind::kInputGradient) split.emplace(action.stage, action.microbatch);
  return split;
}

}  // namespace

// From the outermost to the innermost. A recorded stage replays all that is listed after its part. A gathered stage has
// its parameters while the following parts run.
StepParts step_parts(ModelState& state, const CallPlan& plan, const ExecuteOptions& options, const Criterion& criterion,
                     StepCore& core) {
  PluginContext& plugin = *state.plugin;
  GradientBuffers* gradients = state.accumulation ? &state.accumulation->gradients() : nullptr;
  const bool runs = plan.microbatches > 0;
  const schedule::Schedule* schedule =
      runs ? &state.executor_for(plan.microbatches, !plan.trains, plan.gather).schedule() : nullptr;
  const bool interleaves = runs && plan.trains && !state.gathered && !state.offload && schedule->has_pairs();
  StepParts parts;
  const auto add = [&](std::unique_ptr<StepPart> part) { parts.push_back(std::move(part)); };
  if (gradients)
    add(std::make_unique<ReducedGradients>(
        *gradients, ReducedGradients::When{.at_last_backward = plan.syncs,
                                           .after_each_backward = plan.scattering == Scattering::kAfterEachBackward}));
  if (plan.trains && state.offload) add(std::make_unique<OffloadedPart>(*state.offload));
  if (runs && state.vocabulary)
    add(std::make_unique<VocabularyPart>(*state.vocabulary, core, *schedule,
                                         VocabularyPasses::Options{.seed = core.settings.seed_gradient,
                                                                   .needs_gradients = plan.trains,
                                                                   .keeps_outputs = options.return_outputs,
                                                                   .is_aligned = state.parts.has_value(),
                                                                   .loss = state.vocabulary->loss_of(criterion),
                                                                   .logit_limit = core.settings.logit_limit}));
  if (runs && plan.trains && state.graphs) {
    if (interleaves)
      throw ConfigError({"train.device_graphs",
                         "CUDA graphs do not support schedules with pairs of passes that run in turn",
                         "a schedule without pairs", "remove train.device_graphs"});
    if (!options.observer)
      add(std::make_unique<RecordedPart>(*state.graphs, core,
                                         split_backwards(schedule->actions[plugin.stages.pipeline_rank()]),
                                         !state.outputs_compared));
  }
  if (plan.syncs)
    add(std::make_unique<ReadyGradients>(*gradients, core.settings.recomputation == Recomputation::kNone));
  if (state.gathered)
    add(std::make_unique<GatheredPart>(
        state.gathered, GatheredStages::Step{.layer_by_layer = plan.gather == schedule::Gather::kMicrobatch,
                                             .gradients = plan.trains ? gradients : nullptr,
                                             .reduces = plan.syncs}));
  if (plan.trains && plugin.times && plugin.world.device().is_cpu())
    add(std::make_unique<TimedPart>(plugin.forward_times, core.model.layer_ranges().back().end));
  if (interleaves) add(std::make_unique<InterleavedPart>(core));
  if (options.observer) add(std::make_unique<ObservedPart>(*options.observer, core));
  return parts;
}

}  // namespace gantry

#include "gantry/plugins/hybrid_parallel_plugin.h"

#include "gantry/core/error.h"
#include "gantry/plugins/boost_model.h"
#include "gantry/plugins/device_memory.h"
#include "gantry/plugins/own_loop.h"
#include "gantry/plugins/pipeline_call.h"
#include "gantry/plugins/user_checks.h"

namespace gantry {

HybridParallelPlugin::HybridParallelPlugin(World& world, ParallelOptions options)
    : context_(std::make_shared<PluginContext>(world, std::move(options))) {}

HybridParallelPlugin::HybridParallelPlugin(World& world, const Config& config)
    : HybridParallelPlugin(world, parallel_options(config, world.mesh())) {
  context_->before_first_step = [config] { refuse_unused_keys(config); };
}

HybridParallelPlugin::~HybridParallelPlugin() = default;

Boosted HybridParallelPlugin::boost(BoostRequest request) {
  if (!request.model) throw UsageError({"boost", "the request has no model", "", "pass a model"});
  const torch::Device device = context_->world.device();
  BoostedParts parts;
  naming_device_memory([&] { parts = boost_model(context_, request); },
                       [&] { return device_memory(request.model->parameters(), nullptr, device); });
  const Boosted& boosted = parts.handles;
  if (boosted.optimizer)
    check_first_step(device_memory(boosted.model->stage_module(), boosted.optimizer.get(), device));
  models_.push_back(std::move(parts.state));
  return boosted;
}

ModelState& HybridParallelPlugin::state_of(const Boosted& boosted) {
  for (auto& state : models_)
    if (state->model == boosted.model) return *state;
  throw UsageError(
      {"execute_pipeline", "the model was not boosted by this plugin", "", "pass the result of booster.boost()"});
}

// If a call throws, its gradients are incomplete. The next call drops them, because this may need other
// ranks.
StepResult HybridParallelPlugin::execute_pipeline(const Batch& batch, Boosted& boosted, const ExecuteOptions& options) {
  ModelState& state = state_of(boosted);
  const bool trains = boosted.optimizer && !options.forward_only;
  const auto run = [&] {
    try {
      return PipelineCall(state, boosted, options).run(batch);
    } catch (...) {
      if (trains) boosted.optimizer->set_state(BoostedOptimizer::Gradients::kBroken);
      throw;
    }
  };
  StepResult result;
  naming_device_memory([&] { result = run(); },
                       [&] {
                         return device_memory(boosted.model->stage_module_unmaterialized(), boosted.optimizer.get(),
                                              context_->world.device());
                       });
  return result;
}

void HybridParallelPlugin::sync_gradients(Boosted& boosted) {
  ModelState& state = state_of(boosted);
  const bool is_under_way = state.accumulation && state.accumulation->under_way();
  if (state.loop == Loop::kOwn && !is_under_way) return sync_own_loop(boosted, context_->mesh);
  if (!is_under_way) return;
  state.finish_gradients(agree_on_end(state.end_of_step(/*aborted=*/false), context_->mesh));
  state.audit_when_due();
  context_->report_times();
}

void HybridParallelPlugin::audit(Boosted& boosted) { state_of(boosted).audit(); }

void HybridParallelPlugin::distribute(DataLoader& loader, const Boosted& boosted) {
  gantry::distribute(loader, boosted.model->stage_module_unmaterialized(), *context_);
}

std::shared_ptr<int> HybridParallelPlugin::no_sync_guards(const Boosted* boosted) {
  return boosted ? state_of(*boosted).no_sync_guards : context_->no_sync_guards;
}

StateSource& HybridParallelPlugin::state(Boosted& boosted) { return *state_of(boosted).state; }

const ParallelOptions& HybridParallelPlugin::options() const { return context_->options; }
ProcessGroupMesh& HybridParallelPlugin::mesh() { return context_->mesh; }
const PipelineStageManager& HybridParallelPlugin::stages() const { return context_->stages; }
const SplitOutputs& HybridParallelPlugin::split_outputs(const Boosted& boosted) { return state_of(boosted).split; }

const SequenceParts* HybridParallelPlugin::sequence_parts(const Boosted& boosted) {
  const auto& parts = state_of(boosted).parts;
  return parts ? &*parts : nullptr;
}

int HybridParallelPlugin::microbatches(std::int64_t replica_samples) const {
  return context_->schedules.microbatches(context_->stages.num_stages(), replica_samples);
}

schedule::Schedule HybridParallelPlugin::schedule_for(const Boosted& boosted, std::int64_t replica_samples,
                                                      bool forward_only) {
  auto made = state_of(boosted).schedules->make(microbatches(replica_samples));
  return forward_only ? schedule::forward_only(made) : made;
}

void HybridParallelPlugin::set_observer(ActionObserver observer) {
  context_->observer = std::move(observer);
  context_->times = context_->observer ? schedule::action_times(context_->world.device()) : nullptr;
}

schedule::ForwardTimes HybridParallelPlugin::forward_times() const { return context_->forward_times; }

Registry<PluginFactory>& plugins() {
  static Registry<PluginFactory> registry("plugin");
  static const bool filled = [] {
    registry.add("hybrid_parallel", [](World& world, const Config& config) {
      return std::make_unique<HybridParallelPlugin>(world, config);
    });
    return true;
  }();
  (void)filled;
  return registry;
}

}  // namespace gantry

#include "gantry/plugins/hybrid_parallel_plugin.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

#include <torch/torch.h>

#include "gantry/comm/device_backend.h"
#include "gantry/nn/linear.h"
#include "gantry/optimizers/ready_hooks.h"
#include "gantry/plugins/model_setup.h"
#include "gantry/plugins/optimizer_state.h"
#include "gantry/plugins/prepared_batch.h"
#include "gantry/plugins/replica_audit.h"
#include "gantry/plugins/stop_vote.h"
#include "gantry/plugins/users_slips.h"
#include "gantry/schedule/validate.h"
#include "gantry/tensors/host_copy.h"

namespace gantry {

// What the plugin keeps of one boosted model.
struct HybridParallelPlugin::ModelState {
  std::shared_ptr<BoostedModel> model;
  SplitOutputs split;
  std::vector<std::unique_ptr<ProcessGroup>> shared_groups;
  std::shared_ptr<GradientBuffers> gradients;  // null without an optimizer
  std::unique_ptr<OptimizerState> state;

  // Of the accumulation under way, from the first execute_pipeline after a step to the sync.
  double expected_tokens = 0;       // what the loss's gradient is seeded with
  double loss_scale = 1;            // that it is multiplied by
  std::int64_t counted_tokens = 0;  // of this rank's last stage
  bool accumulating = false;
  std::int64_t samples_of_step = 0;  // global samples seen since the optimizer's last step
  std::int64_t step = 0;
  bool inputs_compared = false;   // once, at the first step
  bool outputs_compared = false;  // likewise, on the ranks of the last stage
  bool has_counted = false;       // a step had labels that count
  bool no_sync = false;
  bool said_unused = false;  // that gradients were added to others which nothing had stepped
  // Of the model's parameters, where they are of one type: what a batch's reals become.
  std::optional<torch::ScalarType> real_type;
};

namespace {

bool is_equal_over(ProcessGroup& group, std::int64_t number) {
  const auto all = all_gather_numbers(group, number);
  return std::all_of(all.begin(), all.end(), [&](std::int64_t each) { return each == number; });
}

Recomputation recomputation_of(const std::string& name) {
  if (name == "full") return Recomputation::kFull;
  return name == "selective" ? Recomputation::kSelective : Recomputation::kNone;
}

// True where stages between the first and the last look at the samples themselves.
bool reads_between(const Policy& policy, const std::vector<SampleEntry>& entries) {
  for (const auto& read : policy.entries_between()) {
    const auto is_read = [&](const SampleEntry& entry) { return read == "*" || read == entry.name; };
    if (std::any_of(entries.begin(), entries.end(), is_read)) return true;
  }
  return false;
}

// A model of the program's own, which it has made in another precision than the file says.
void refuse_other_precision(const Config& config, const std::optional<torch::ScalarType>& held) {
  config.honour("precision");
  if (!config.honoured->is_given("precision") || !held || *held == dtype_of(config.precision)) return;
  throw ConfigError({"precision",
                     fmt::format("{}, but the model's parameters are {}", config.precision, dtype_name(*held)),
                     "a model in that precision", "call gantry::set_dtype(*model, ...) before it is boosted"});
}

std::string first_names(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 8;
  const std::vector<std::string> shown(names.begin(), names.begin() + std::min(names.size(), kMost));
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     names.size() > kMost ? fmt::format(" and {} more", names.size() - kMost) : "");
}

}  // namespace

HybridParallelPlugin::HybridParallelPlugin(World& world, Config config)
    : world_(world),
      config_(std::move(config)),
      mesh_(world),
      schedules_(config_.schedule, mesh_.size("pp")),
      stages_(mesh_.coordinate("pp"), schedules_.stages_of_rank()),
      link_(mesh_["pp"]) {}

HybridParallelPlugin::~HybridParallelPlugin() = default;

Boosted HybridParallelPlugin::boost(BoostRequest request) {
  if (!request.model) throw UsageError({"boost", "no model was given", "", "pass a model"});
  refuse_used_optimizer(request.optimizer.get());
  refuse_split_model(request.model);  // before its shapes meet whole ones
  synchronise_first_values(*request.model, mesh_);

  const auto policy = config_.model.policy.empty() ? policy_for(*request.model) : policies().at(config_.model.policy)();
  ShardConfig shard{.stages = &stages_, .tensor_group = &mesh_["tp"], .seed = config_.train.seed};
  shard.sequence_parallel = config_.parallel.sequence_parallel && mesh_.size("tp") > 1;
  shard.layers_of_stage = chosen_layers(config_.schedule, *policy, *request.model, stages_);
  auto state = std::make_unique<ModelState>();
  const auto split_outputs = policy->split_outputs(*request.model);
  state->model = std::make_shared<BoostedModel>(shard_model(request.model, policy, shard));
  // What this rank holds is all there is by now. Parameters stay the objects that the optimizer knows.
  if (const torch::Device device = rank_device(world_); !device.is_cpu()) request.model->to(device);
  state->split =
      bind_split_outputs(*request.model, split_outputs, request.criterion.accepts_split_outputs(), mesh_["tp"]);

  Boosted boosted{.model = state->model,
                  .optimizer = nullptr,
                  .criterion = request.criterion,
                  .loader = request.loader,
                  .lr_schedule = request.lr_schedule};
  const auto& module = state->model->stage_module();
  state->real_type = real_type_of(module);
  refuse_other_precision(config_, state->real_type);
  auto shared = make_shared_groups(module, stages_, mesh_, state->shared_groups);
  if (request.optimizer) {
    keep_held_parameters(*request.optimizer, module);
    boosted.optimizer = boost_optimizer(request, *state, std::move(shared));
  }
  if (boosted.loader) distribute(*boosted.loader, boosted);
  state->state = std::make_unique<OptimizerState>(*state->model, boosted.optimizer, stages_);
  models_.push_back(std::move(state));
  return boosted;
}

std::shared_ptr<BoostedOptimizer> HybridParallelPlugin::boost_optimizer(const BoostRequest& request, ModelState& state,
                                                                        std::vector<SharedGradient> shared) {
  const auto& parameters = state.model->stage_module().parameters;
  state.gradients = std::make_shared<GradientBuffers>(
      parameters, std::move(shared), mesh_,
      GradientOptions{.bucket_bytes = static_cast<std::int64_t>(config_.parallel.bucket_mb * (1 << 20)),
                      .zero = config_.parallel.zero});
  report_ready_gradients(state.gradients);
  std::unique_ptr<MasterParameters> masters;
  if (MasterParameters::needed(parameters, config_.parallel.zero > 0))
    masters = std::make_unique<MasterParameters>(*request.optimizer, *state.gradients, mesh_);
  StepRules rules{.lr_schedule = request.lr_schedule,
                  .clip_grad_norm = config_.optimizer.clip_grad_norm,
                  .skip_non_finite = config_.train.non_finite == "skip",
                  .scaled = {}};
  if (config_.precision == "float16") rules.scaled = config_.loss_scale;
  return std::make_shared<BoostedOptimizer>(request.optimizer, state.gradients, std::move(masters), mesh_,
                                            stages_.stages(), rules);
}

void HybridParallelPlugin::distribute(DataLoader& loader, const Boosted& boosted) {
  const bool at_an_end = stages_.holds_first() || stages_.holds_last();
  const bool reads = at_an_end || reads_between(boosted.model->stage_module().policy(), loader.entries());
  loader.distribute(mesh_.size("dp"), mesh_.coordinate("dp"), reads);
  const double samples = reads ? static_cast<double>(loader.samples()) : 0;
  loader.set_samples(static_cast<std::int64_t>(all_reduce_number(mesh_["pp"], samples, ReduceOp::kMax)));
}

void HybridParallelPlugin::set_no_sync(bool no_sync, const Boosted* boosted) {
  (boosted ? state_of(*boosted).no_sync : no_sync_) = no_sync;
}

HybridParallelPlugin::ModelState& HybridParallelPlugin::state_of(const Boosted& boosted) {
  for (auto& state : models_)
    if (state->model == boosted.model) return *state;
  throw UsageError(
      {"execute_pipeline", "the model was not boosted by this plugin", "", "pass what booster.boost returned"});
}

const SplitOutputs& HybridParallelPlugin::split_outputs(const Boosted& boosted) { return state_of(boosted).split; }

StateSource& HybridParallelPlugin::state(Boosted& boosted) { return *state_of(boosted).state; }

schedule::Schedule HybridParallelPlugin::schedule_for(std::int64_t replica_samples, bool forward_only) const {
  auto made = schedules_.make(microbatches(replica_samples));
  return forward_only ? schedule::forward_only(made) : made;
}

schedule::Executor& HybridParallelPlugin::executor_for(int microbatches, bool forward_only) {
  const std::pair key{microbatches, forward_only};
  if (const auto found = executors_.find(key); found != executors_.end()) return found->second;
  auto made = schedules_.make(microbatches);
  if (forward_only) made = schedule::forward_only(made);
  auto lowered = schedule::lower(made);
  schedule::validate(lowered);
  return executors_.emplace(key, schedule::Executor(std::move(lowered), stages_.pipeline_rank(), link_)).first->second;
}

// Replicas may not know of each other's samples: ask once, where the batch does not say.
void HybridParallelPlugin::agree_on_counts(Batch& batch, const Policy& policy) {
  if (batch.tokens_per_sample == 0) batch.tokens_per_sample = policy.tokens_per_sample(batch.tensors);
  if (batch.tokens_per_sample == 0 && config_.parallel.sequence_parallel && mesh_.size("tp") > 1)
    throw InputError({"batch", "how many tokens a sample of " + describe(batch.tensors) + " has is not known",
                      "input_ids [samples, tokens], or integers of one such shape, for sequence parallelism",
                      "set batch.tokens_per_sample, or override " + policy.name() + "::tokens_per_sample"});
  batch.tokens_per_sample = std::max<std::int64_t>(1, batch.tokens_per_sample);
  if (batch.global_samples != 0) return;
  const auto samples = all_gather_numbers(mesh_["dp"], batch.samples);
  batch.first_sample = 0;
  for (int replica = 0; replica < mesh_.coordinate("dp"); ++replica) batch.first_sample += samples[replica];
  for (const std::int64_t count : samples) batch.global_samples += count;
}

void HybridParallelPlugin::check_batch(const Batch& batch) const {
  for (const auto& [name, tensor] : batch.tensors) {
    if (!tensor.defined() || tensor.dim() == 0 || tensor.size(0) != batch.samples) {
      throw InputError({"batch entry '" + name + "'", "has shape " + describe(tensor),
                        fmt::format("{} samples along dim 0, as the batch says", batch.samples),
                        "give every entry the same number of samples"});
    }
  }
  if (batch.global_samples < batch.first_sample + batch.samples) {
    throw InputError({"batch",
                      fmt::format("samples {} to {} of a global batch of {}", batch.first_sample,
                                  batch.first_sample + batch.samples, batch.global_samples),
                      "a place inside the global batch", "leave global_samples 0 to have it found out"});
  }
}

StepResult HybridParallelPlugin::execute_pipeline(const Batch& given, Boosted& boosted, const ExecuteOptions& options) {
  ModelState& state = state_of(boosted);
  Batch batch = given;
  const StageModule& module = state.model->stage_module();
  agree_on_counts(batch, module.policy());
  check_batch(batch);
  if (!state.inputs_compared) check_equal_inputs(batch.tensors, mesh_);
  state.inputs_compared = true;
  const PreparedBatch prepared(batch.tensors, rank_device(world_), state.real_type);
  batch.tensors = prepared.tensors;
  const bool train = boosted.optimizer && !options.forward_only;
  if (train && !boosted.criterion)
    throw UsageError({"execute_pipeline", "training needs a criterion", "", "pass one to boost"});

  if (train && boosted.optimizer->steps() != state.step) {
    state.step = boosted.optimizer->steps();
    state.samples_of_step = 0;
  }
  const bool no_sync = no_sync_ || state.no_sync, begins = train && !state.accumulating;
  if (begins && state.step == 0) refuse_unhonoured_keys(config_);
  if (begins) {
    const bool removed = state.gradients->begin_accumulation();
    look_at_unused_gradients(state, *boosted.optimizer, removed);
    state.expected_tokens = std::max<double>(1, static_cast<double>(batch.global_samples * batch.tokens_per_sample));
    state.loss_scale = boosted.optimizer->loss_scale();
    state.counted_tokens = 0;
    state.accumulating = true;
    boosted.optimizer->set_synced(false);
  }
  if (train) state.gradients->bring_in();
  if (train && boosted.optimizer->masters()) boosted.optimizer->masters()->bring_in();

  const int count = this->microbatches(batch.samples);
  std::vector<Batch> microbatches;
  for (const auto& [begin, end] : split_evenly(batch.samples, count)) microbatches.push_back(slice(batch, begin, end));
  // Replicas that run unequal numbers of microbatches can't reduce in the midst of them.
  const bool scatters = train && state.gradients->scatters();
  const bool holds = scatters && !is_equal_over(mesh_["dp"], count);
  if (scatters) state.gradients->hold(holds);
  const RandomContext random{.seed = config_.train.seed,
                             .step = static_cast<std::uint64_t>(state.step),
                             .first_sample = state.samples_of_step + batch.first_sample,
                             .sequence_length = config_.parallel.sequence_parallel ? batch.tokens_per_sample : 0};
  const auto check_outputs = [&](const TensorDict& outputs) {
    state.outputs_compared = check_whole_outputs(outputs, state.split, module, mesh_);
  };
  PipelineStep step(module, boosted.criterion, state.split, std::move(microbatches),
                    {.seed_gradient = train ? state.loss_scale / state.expected_tokens : 1,
                     .random = random,
                     .needs_gradients = train,
                     .keep_outputs = options.return_outputs && stages_.holds_last(),
                     .recomputation = recomputation_of(config_.schedule.recompute),
                     .gradients = train && !no_sync ? state.gradients.get() : nullptr,
                     .scattered = scatters && !holds ? state.gradients.get() : nullptr,
                     .values = state.gradients.get(),
                     .recomputed_layers = config_.schedule.recompute_layers,
                     .is_whole = count <= 1 && batch.samples == batch.global_samples && !no_sync && (begins || !train),
                     .check_outputs = state.outputs_compared ? std::function<void(const TensorDict&)>()
                                                             : std::function(check_outputs)});
  bool given_up = false;
  {
    const EvaluationGuard evaluation(state.model->module(), !train);
    // Collectives within a step: those of tp, and under ZeRO 2 those of dp.
    ProcessGroup& together = scatters && !holds ? mesh_.group(std::vector<std::string>{"dp", "tp"}) : mesh_["tp"];
    StopVote vote(together, options.stops);
    const auto stops = options.stops ? schedule::Executor::Stops(std::ref(vote)) : schedule::Executor::Stops();
    if (count > 0) given_up = !executor_for(count, !train).run(step, observer_, stops);
  }
  if (holds)
    for (const int stage : stages_.stages()) state.gradients->scatter_stage(stage);
  const std::int64_t counted = step.loss_count();
  if (train) {
    state.samples_of_step += batch.global_samples;
    state.counted_tokens += counted;
  }

  const bool syncs = train && !no_sync;
  if (syncs || options.stops) {
    const StepEnd end = agree_on_end(state, given_up);
    if (end.given_up) {
      if (train) give_up(state, boosted);
      return {.given_up = true};
    }
    if (syncs) finish_gradients(state, boosted, end.counted);
  }
  StepResult result;
  if (options.return_outputs) result.outputs = step.outputs();
  if (!options.return_loss || !boosted.criterion) return result;
  const auto [sum, total] = read_loss(step.losses(), counted, syncs ? boosted.optimizer.get() : nullptr);
  if (options.broadcast_loss || stages_.holds_last()) {
    result.tokens = static_cast<std::int64_t>(total);
    result.loss = total > 0 ? sum / total : 0.0;
  }
  return result;
}

// The loss's sum and count over all ranks. One look at the device is all that a step affords: it takes the norms of
// `synced`'s gradients along, where there is one.
std::pair<double, double> HybridParallelPlugin::read_loss(std::vector<torch::Tensor> losses, std::int64_t counted,
                                                          BoostedOptimizer* synced) {
  const auto own = static_cast<std::ptrdiff_t>(losses.size());
  if (synced) losses.push_back(synced->part_norms());
  const auto numbers = read_back(losses);
  if (synced) synced->set_part_norms({numbers.begin() + own, numbers.end()});
  const double sum = std::accumulate(numbers.begin(), numbers.begin() + own, 0.0);
  torch::Tensor totals = torch::tensor({sum, static_cast<double>(counted)}, torch::kFloat64);
  mesh_.group(std::vector<std::string>{"dp", "pp"}).all_reduce(totals).wait();
  const auto* total = totals.const_data_ptr<double>();
  return {total[0], total[1]};
}

// Reductions that are under way on some ranks end on all of them.
void HybridParallelPlugin::give_up(ModelState& state, Boosted& boosted) {
  state.gradients->sync(1);
  boosted.optimizer->zero_grad();
  state.accumulating = false;
  state.samples_of_step = 0;
}

void HybridParallelPlugin::sync_gradients(Boosted& boosted) {
  ModelState& state = state_of(boosted);
  if (!boosted.optimizer || !state.accumulating) return;
  finish_gradients(state, boosted, agree_on_end(state, /*given_up=*/false).counted);
}

// What all ranks have counted since gradients were zeroed, and whether any of them has given this step up.
HybridParallelPlugin::StepEnd HybridParallelPlugin::agree_on_end(const ModelState& state, bool given_up) {
  torch::Tensor totals =
      torch::tensor({static_cast<double>(state.counted_tokens), given_up ? 1.0 : 0.0}, torch::kFloat64);
  mesh_.group(std::vector<std::string>{"dp", "pp"}).all_reduce(totals).wait();
  const auto* total = totals.const_data_ptr<double>();
  return {.counted = total[0], .given_up = total[1] > 0};
}

void HybridParallelPlugin::finish_gradients(ModelState& state, Boosted& boosted, double counted) {
  state.gradients->sync((counted > 0 ? state.expected_tokens / counted : 1) / state.loss_scale);
  state.accumulating = false;
  boosted.optimizer->set_synced(true);
  look_at_first_step(state, counted);
  if (const int every = config_.train.audit_every; every > 0 && (state.step + 1) % every == 0) audit(boosted);
}

// Where masters are stepped in place of the parameters, no other optimizer trains the model.
void HybridParallelPlugin::look_at_unused_gradients(ModelState& state, BoostedOptimizer& optimizer, bool removed) {
  if (!optimizer.masters() || !optimizer.has_unused_gradients()) return;
  if (removed)
    throw UsageError({"boosted optimizer", "another optimizer has removed gradients that were not stepped", "",
                      "call boosted.optimizer->step() and zero_grad(): under ZeRO or in a low precision no other "
                      "optimizer trains the model"});
  if (!state.said_unused && world_.is_main())
    fmt::print(stderr,
               "warning: execute_pipeline adds to gradients that were neither stepped nor zeroed; call "
               "boosted.optimizer->step(), since under ZeRO or in a low precision no other optimizer trains the "
               "model; booster.no_sync() where they are to be added\n");
  state.said_unused = true;
}

void HybridParallelPlugin::look_at_first_step(ModelState& state, double counted) {
  if (counted == 0) {
    if (!state.has_counted)
      throw InputError({"batch", "none of the first step's labels is counted", "labels that are not all ignored",
                        "check how the labels are made: -100 (ignore_index) means that one is not counted"});
    if (world_.is_main())
      fmt::print(stderr, "warning: none of the labels of step {} is counted: its gradients are zero\n", state.step + 1);
    return;
  }
  if (state.has_counted) return;
  state.has_counted = true;
  const auto names = parameters_without_gradient(*state.gradients, state.model->stage_module(), mesh_);
  if (!names.empty() && world_.is_main())
    fmt::print(stderr,
               "warning: {} parameters got no gradient in the first step: {}; the policy's forward does not use them, "
               "or detaches what they give; freeze them (requires_grad) where that is meant\n",
               names.size(), first_names(names));
}

void HybridParallelPlugin::audit(Boosted& boosted) {
  if (!boosted.optimizer) return;
  boosted.optimizer->wait();
  boosted.optimizer->gradients().complete();
  audit_replicas(boosted.optimizer->gradients(), mesh_, stages_);
}

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

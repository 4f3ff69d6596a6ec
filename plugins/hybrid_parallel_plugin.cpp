#include "gantry/plugins/hybrid_parallel_plugin.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/checkpoint/disk_work.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/pipeline/action_times.h"
#include "gantry/pipeline/executor.h"
#include "gantry/pipeline/stage_link.h"
#include "gantry/planner/recompute.h"
#include "gantry/plugins/accumulation.h"
#include "gantry/plugins/device_memory.h"
#include "gantry/plugins/gathered_stages.h"
#include "gantry/plugins/joint_samples.h"
#include "gantry/plugins/model_routers.h"
#include "gantry/plugins/model_setup.h"
#include "gantry/plugins/optimizer_state.h"
#include "gantry/plugins/own_loop.h"
#include "gantry/plugins/pipeline_step.h"
#include "gantry/plugins/prepared_batch.h"
#include "gantry/plugins/replica_audit.h"
#include "gantry/plugins/sequence_parts.h"
#include "gantry/plugins/stage_graphs.h"
#include "gantry/plugins/step_end.h"
#include "gantry/plugins/step_offload.h"
#include "gantry/plugins/stop_vote.h"
#include "gantry/plugins/user_checks.h"
#include "gantry/plugins/vocabulary_passes.h"
#include "gantry/schedule/offload_actions.h"
#include "gantry/schedule/parameter_actions.h"
#include "gantry/schedule/validate.h"
#include "gantry/tensors/entry_reads.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

// What the plugin keeps of one boosted model.
struct HybridParallelPlugin::ModelState {
  std::shared_ptr<const ProcessGroupMesh> mesh;  // destroyed last
  std::shared_ptr<BoostedModel> model;
  Loop loop = Loop::kPipeline;
  SplitOutputs split;
  std::vector<std::unique_ptr<ProcessGroup>> shared_groups;
  std::shared_ptr<BoostedOptimizer> optimizer;  // null without one; the handles of users own this state
  std::unique_ptr<Accumulation> accumulation;   // null without an optimizer
  std::unique_ptr<OptimizerState> state;
  std::optional<ScheduleSource> schedules;
  // Key: number of microbatches, forward_only, and when sharded parameters are gathered.
  std::map<std::tuple<int, bool, std::optional<schedule::Gather>>, std::unique_ptr<schedule::Executor>> executors;
  bool compares_samples = false;   // the loss compares all samples of a step
  bool inputs_compared = false;    // at the first step
  bool keys_checked = false;       // at the first training step
  bool documents_checked = false;  // at the first training step
  bool outputs_compared = false;   // at the first step, on the ranks of the last stage
  std::shared_ptr<int> no_sync_guards = std::make_shared<int>(0);
  std::vector<std::string> loss_names;  // of losses that stages add, on any rank
  // Of the model's parameters, where they are of one type: what a batch's reals become.
  std::optional<torch::ScalarType> real_type;
  std::optional<SequenceParts> parts;  // where ranks share sequences
  std::optional<ModelRouters> routers;
  std::unique_ptr<ParameterShards> shards;       // if parameters are sharded over replicas
  std::shared_ptr<GatheredStages> gathered;      // likewise
  std::unique_ptr<StepOffload> offload;          // where something waits on the host
  std::unique_ptr<StageGraphs> graphs;           // where work is recorded
  std::unique_ptr<SharedVocabulary> vocabulary;  // where ranks of a pipeline share embedding and head; null: they don't
};

// How a batch is run.
struct HybridParallelPlugin::StepPlan {
  enum class Scattering { kNone, kAfterEachBackward, kAfterTheStep };

  bool trains = false;
  bool syncs = false;    // gradients, at its end
  bool joins = false;    // adds gradients to those of earlier calls
  bool adds = false;     // gradients to those of other calls, or others to its own
  bool is_full = false;  // one microbatch is all that the gradients are of
  int microbatches = 0;
  Scattering scattering = Scattering::kNone;
  std::optional<schedule::Gather> gather;  // if parameters are sharded
};

namespace {

Recomputation recomputation_of(const std::string& name) {
  if (name == "full") return Recomputation::kFull;
  if (name == "parts") return Recomputation::kParts;
  return name == "selective" ? Recomputation::kSelective : Recomputation::kNone;
}

std::shared_ptr<const Policy> policy_of(const BoostRequest& request, const Config& config) {
  if (request.policy) return request.policy;
  return config.model.policy.empty() ? policy_for(*request.model) : policies().at(config.model.policy)();
}

// True where stages between the first and the last look at the samples themselves.
bool reads_between(const Policy& policy, const std::vector<SampleEntry>& entries) {
  for (const auto& read : policy.entries_between()) {
    const auto is_read = [&](const SampleEntry& entry) { return read == "*" || read == entry.name; };
    if (std::any_of(entries.begin(), entries.end(), is_read)) return true;
  }
  return false;
}

// A loss over a whole step at once is no sum over its parts.
void refuse_parts_of_joint_loss(const BoostedModel& model, int microbatches, const ProcessGroupMesh& mesh) {
  const StageModule& module = model.stage_module_unmaterialized();
  const std::string key = module.policy().joint_loss(module.module());
  const int stages = module.num_stages(), replicas = mesh.batch_group().size();
  if (key.empty() || (stages == 1 && replicas == 1 && microbatches <= 1)) return;
  throw ConfigError(
      {key,
       fmt::format(
           "this loss covers all layers and samples at once, but there are {} stages, {} replicas and {} microbatches",
           stages, replicas, microbatches),
       "one of each", "set it to false, or train on one stage with one microbatch"});
}

// A configuration that a program has made obeys the same rules as a file.
Config checked(Config config) {
  Config::parse_written(config.to_yaml(), /*name=*/"");
  dtype_of(config.precision);  // files alone have short names
  if (config.parallel.expert > 1 && config.parallel.vocabulary != "stages")
    throw ConfigError(
        {"parallel.vocabulary",
         fmt::format("the value is {}, but parallel.expert is {}", config.parallel.vocabulary, config.parallel.expert),
         "stages if experts are on several ranks", "remove one of the two keys"});
  return config;
}

StepEnd end_of(Accumulation& accumulation, bool aborted) {
  return {.counted = static_cast<double>(accumulation.counted()),
          .aborted = aborted,
          .unsent = accumulation.gradients().has_unsent()};
}

std::set<std::pair<int, int>> split_backwards(const std::vector<schedule::Action>& row) {
  std::set<std::pair<int, int>> split;
  for (const schedule::Action& action : row)
    if (action.kind == schedule::ActionKind::kInputGradient) split.emplace(action.stage, action.microbatch);
  return split;
}

}  // namespace

HybridParallelPlugin::HybridParallelPlugin(World& world, Config config)
    : world_(world),
      config_(checked(std::move(config))),
      mesh_owner_(std::make_shared<ProcessGroupMesh>(world)),
      mesh_(*mesh_owner_),
      schedules_(config_.schedule, mesh_.size(axis::kPipeline)),
      stages_(mesh_.coordinate(axis::kPipeline), schedules_.stages_of_rank()),
      link_(std::make_unique<StageLink>(mesh_[axis::kPipeline])) {
  if (const auto choice = planner::chosen_recompute(config_, mesh_.size(axis::kData)))
    planner::apply(*choice, config_.schedule);
  if (config_.parallel.context > 1)
    layer_group_ = mesh_.make_group("cp+tp", mesh_.mesh().groups({axis::kContext, axis::kTensor}));
}

HybridParallelPlugin::~HybridParallelPlugin() = default;

Boosted HybridParallelPlugin::boost(BoostRequest request) {
  if (!request.model) throw UsageError({"boost", "the request has no model", "", "pass a model"});
  Boosted boosted;
  naming_device_memory([&] { boosted = boost_model(request); },
                       [&] { return device_memory(request.model->parameters(), nullptr, world_.device()); });
  if (boosted.optimizer)
    check_first_step(device_memory(boosted.model->stage_module(), boosted.optimizer.get(), world_.device()));
  return boosted;
}

Boosted HybridParallelPlugin::boost_model(const BoostRequest& request) {
  if (request.loop == Loop::kOwn) refuse_what_needs_the_pipeline(config_, mesh_);
  refuse_used_optimizer(request.optimizer.get());
  refuse_split_model(request.model);  // before its shapes meet full ones
  synchronise_initial_weights(*request.model, mesh_);

  const auto policy = policy_of(request, config_);
  ShardConfig shard{
      .stages = &stages_, .tensor_group = &mesh_[axis::kTensor], .seed = config_.train.seed, .device = world_.device()};
  shard.sequence_parallel = config_.parallel.sequence_parallel && mesh_.size(axis::kTensor) > 1;
  if (mesh_.mesh().has_expert_view()) shard.expert_group = &mesh_[axis::kExpert];
  if (config_.experts.dispatch == "all_gather") shard.dispatch = ExpertDispatch::kAllGather;
  shard.gradient_sum = gradient_sum_of(request.loop);
  // Ranks that train nothing hold full parameters, and so does a single replica.
  const RowShards rows = row_shards(mesh_.mesh(), config_.parallel.zero == 3 ? config_.parallel.shard : 0);
  const bool shards_rows = config_.parallel.zero == 3 && request.optimizer && rows.is_over_ranks();
  if (shards_rows) {
    shard.rows = &rows;
    shard.coordinates = mesh_.coordinates();
  }
  auto state = std::make_shared<ModelState>();
  state->mesh = mesh_owner_;
  state->loop = request.loop;
  state->parts = SequenceParts::of(config_, *policy, *request.model, mesh_, world_.device());
  if (state->parts) state->parts->require(request.criterion);
  state->compares_samples = share_samples(*request.model, mesh_);
  state->schedules = schedules_;
  const bool shares_vocabulary = chosen_vocabulary(*state->schedules, *policy, *request.model);
  shard.layers_of_stage = chosen_layers(config_.schedule, *policy, *request.model, stages_, shares_vocabulary);
  if (shares_vocabulary) shard.vocabulary = SharedVocabulary::axes_of(mesh_);
  const auto split_outputs = shares_vocabulary ? std::vector<SplitOutput>() : policy->split_outputs(*request.model);
  state->model = std::make_shared<BoostedModel>(shard_model(request.model, policy, shard));
  // What this rank holds is all there is by now. Parameters stay the objects that the optimizer knows.
  if (const torch::Device device = world_.device(); !device.is_cpu()) request.model->to(device);
  const bool keeps_split = request.loop == Loop::kPipeline && request.criterion.accepts_split_outputs();
  state->split = bind_split_outputs(*request.model, split_outputs, keeps_split, mesh_[axis::kTensor]);

  // Both handles own all that they need, and the process groups, so that they can outlive the plugin.
  Boosted boosted{.model = {state, state->model.get()},
                  .optimizer = nullptr,
                  .criterion = request.criterion,
                  .loader = request.loader};
  const auto& module = state->model->stage_module();
  if (shares_vocabulary) {
    state->vocabulary = std::make_unique<SharedVocabulary>(module, config_, mesh_, stages_);
    state->vocabulary->loss_of(request.criterion);  // throws for one that is not possible
  }
  state->real_type = real_type_of(module);
  refuse_other_precision(config_, state->real_type);
  state->routers.emplace(config_.experts, module, mesh_, shard.sequence_parallel);
  auto shared = make_shared_groups(module, stages_, mesh_, state->shared_groups);
  if (request.optimizer) {
    keep_held_parameters(*request.optimizer, module);
    if (shards_rows) shard_parameters(*state, rows);
    state->optimizer = boost_optimizer(request, state->shards ? state->shards->unsharded() : module.parameters,
                                       std::move(shared), config_, mesh_, stages_, state->shards.get());
    boosted.optimizer = {state, state->optimizer.get()};
    state->accumulation = std::make_unique<Accumulation>(state->optimizer, module, mesh_);
    if (const auto offload = schedule::offload_of(config_.train.offload); offload.any())
      state->offload = std::make_unique<StepOffload>(offload, *boosted.optimizer, stages_.stages(), world_.device());
    if (config_.train.device_graphs) {
      if (state->compares_samples)
        throw ConfigError({"train.device_graphs",
                           "CUDA graphs do not support a loss that compares all samples, because the host reads the "
                           "number of samples of each replica in every step",
                           "", "remove train.device_graphs"});
      if (state->routers->choices())
        throw ConfigError({"train.device_graphs",
                           "CUDA graphs do not support models with experts, because the host reads the number of "
                           "tokens per expert in every step",
                           "", "remove train.device_graphs"});
      state->graphs = std::make_unique<StageGraphs>(module, world_.device());
    }
    boosted.optimizer->set_after_step([routers = &*state->routers] { routers->stepped(); });
  }
  if (boosted.loader) distribute(*boosted.loader, boosted);
  state->state =
      std::make_unique<OptimizerState>(*state->model, state->optimizer, stages_, mesh_, config_.lora.is_on());
  models_.push_back(std::move(state));
  return boosted;
}

// Parameters hold their rows alone by now.
void HybridParallelPlugin::shard_parameters(ModelState& state, const RowShards& rows) {
  StageModule& module = state.model->stage_module();
  state.shards = std::make_unique<ParameterShards>(module.parameters, layers_of_parameters(module), rows, mesh_);
  state.gathered = std::make_shared<GatheredStages>(*state.shards, module);
  module.materialize_shard = [shards = state.shards.get()] { shards->keep_rows(); };
  module.gather = [gathered = state.gathered, stages = stages_.stages()] { return gathered->gather_all(stages); };
}

// Whether embedding and head are computed by all ranks of a pipeline; the model's schedules are then made for that.
bool HybridParallelPlugin::chosen_vocabulary(ScheduleSource& schedules, const Policy& policy,
                                             const torch::nn::Module& model) const {
  if (config_.parallel.vocabulary == "stages" || stages_.pipeline_size() == 1) return false;
  const bool is_possible = policy.vocabulary(model).has_value();
  const LayerWork work = policy.layer_work(model);
  if (config_.parallel.vocabulary == "auto" &&
      !(is_possible && schedules.gains_by_vocabulary(work, chosen_layers(config_.schedule, policy, model, stages_))))
    return false;
  schedules.share_vocabulary(work);
  return true;
}

void HybridParallelPlugin::distribute(DataLoader& loader, const Boosted& boosted) {
  const bool at_an_end = stages_.holds_first() || stages_.holds_last();
  const StageModule& module = boosted.model->stage_module_unmaterialized();
  const bool reads =
      at_an_end || loader.collates() || module.vocabulary() || reads_between(module.policy(), loader.entries());
  DiskProgress progress;
  work_on_disk(mesh_.world_group(), disk_limits(config_.comm.timeout_seconds, "opening the data"), progress, [&] {
    loader.distribute(mesh_.size(axis::kData), mesh_.coordinate(axis::kData), reads,
                      [&](std::uint64_t bytes) { progress.add(bytes); });
  });
  loader.send_ahead_to(world_.device());
  const double samples = reads ? static_cast<double>(loader.samples()) : 0;
  loader.set_samples(static_cast<std::int64_t>(all_reduce_number(mesh_[axis::kPipeline], samples, ReduceOp::kMax)));
}

std::shared_ptr<int> HybridParallelPlugin::no_sync_guards(const Boosted* boosted) {
  return boosted ? state_of(*boosted).no_sync_guards : no_sync_guards_;
}

HybridParallelPlugin::ModelState& HybridParallelPlugin::state_of(const Boosted& boosted) {
  for (auto& state : models_)
    if (state->model == boosted.model) return *state;
  throw UsageError(
      {"execute_pipeline", "the model was not boosted by this plugin", "", "pass the result of booster.boost()"});
}

const SplitOutputs& HybridParallelPlugin::split_outputs(const Boosted& boosted) { return state_of(boosted).split; }

const SequenceParts* HybridParallelPlugin::sequence_parts(const Boosted& boosted) {
  const auto& parts = state_of(boosted).parts;
  return parts ? &*parts : nullptr;
}

StateSource& HybridParallelPlugin::state(Boosted& boosted) { return *state_of(boosted).state; }

schedule::Schedule HybridParallelPlugin::schedule_for(const Boosted& boosted, std::int64_t replica_samples,
                                                      bool forward_only) {
  auto made = state_of(boosted).schedules->make(microbatches(replica_samples));
  return forward_only ? schedule::forward_only(made) : made;
}

schedule::Executor& HybridParallelPlugin::executor_for(ModelState& state, int microbatches, bool forward_only,
                                                       std::optional<schedule::Gather> gather) {
  const std::tuple key{microbatches, forward_only, gather};
  if (const auto found = state.executors.find(key); found != state.executors.end()) return *found->second;
  auto made = state.schedules->make(microbatches);
  if (forward_only) made = schedule::forward_only(made);
  if (gather) made = schedule::with_parameter_actions(made, *gather);
  if (!forward_only) made = schedule::with_offload_actions(made, schedule::offload_of(config_.train.offload));
  auto lowered = schedule::lower(made);
  schedule::validate(lowered);
  auto executor = std::make_unique<schedule::Executor>(std::move(lowered), stages_.pipeline_rank(), *link_);
  return *state.executors.emplace(key, std::move(executor)).first->second;
}

StepResult HybridParallelPlugin::execute_pipeline(const Batch& batch, Boosted& boosted, const ExecuteOptions& options) {
  StepResult result;
  naming_device_memory([&] { result = run_pipeline(batch, boosted, options); },
                       [&] {
                         return device_memory(boosted.model->stage_module_unmaterialized(), boosted.optimizer.get(),
                                              world_.device());
                       });
  return result;
}

// The gradients of a call that throws are incomplete: the next call drops them, which may need other ranks.
StepResult HybridParallelPlugin::run_pipeline(const Batch& batch, Boosted& boosted, const ExecuteOptions& options) {
  ModelState& state = state_of(boosted);
  const bool trains = boosted.optimizer && !options.forward_only;
  if (!trains) return run_step(state, batch, boosted, options);
  try {
    return run_step(state, batch, boosted, options);
  } catch (...) {
    boosted.optimizer->set_state(BoostedOptimizer::Gradients::kBroken);
    throw;
  }
}

StepResult HybridParallelPlugin::run_step(ModelState& state, const Batch& given, Boosted& boosted,
                                          const ExecuteOptions& options) {
  Batch batch = given;
  const Criterion& criterion = options.criterion ? options.criterion : boosted.criterion;
  if (state.parts) state.parts->require(criterion);
  if (options.observer && state.vocabulary)
    throw ConfigError({"parallel.vocabulary", "the value is pipeline, but the outputs of modules are observed",
                       "stages for gantry compare, and for the outputs of routers",
                       "remove parallel.vocabulary, which does not change the loss, gradients or logits"});
  StepPlan plan = plan_call(state, boosted, criterion, given.samples, options);
  const StepCounts counts = agree_on_counts(
      batch, {.microbatches = plan.microbatches, .trains = plan.trains, .syncs = plan.syncs, .adds = plan.joins},
      stages_.holds_last() ? criterion : Criterion(), state.model->stage_module_unmaterialized().policy(),
      config_.parallel.sequence_parallel, mesh_);
  check_batch(batch);
  if (!state.inputs_compared) {
    check_equal_inputs(batch.tensors, mesh_, axis::kTensor);
    if (state.parts) check_equal_inputs(batch.tensors, mesh_, axis::kContext);
  }
  state.inputs_compared = true;
  const Batch full = batch;
  if (state.parts) batch = state.parts->shard(std::move(batch), criterion);
  const PreparedBatch prepared(batch, world_.device(), state.real_type);
  batch.tensors = prepared.tensors;
  batch.full = prepared.full;

  complete_plan(plan, state, counts, batch);
  if (state.compares_samples) refuse_parts_of_samples(plan.microbatches, plan.adds);
  if (plan.trains) begin_step(state, boosted, plan, counts, options);
  if (plan.trains && !plan.adds) forward_times_ = {};
  const nn::RouterBalance balance = balance_of(state, criterion, full, plan, options);
  PipelineStep step = make_step(state, criterion, batch, plan, options, balance);
  std::optional<VocabularyPasses> passes;
  if (state.vocabulary && plan.microbatches > 0) {
    passes.emplace(*state.vocabulary, step.microbatches(),
                   executor_for(state, plan.microbatches, !plan.trains, plan.gather).schedule(),
                   VocabularyPasses::Options{.seed = plan.trains ? state.accumulation->seed() : 1,
                                             .needs_gradients = plan.trains,
                                             .keeps_outputs = options.return_outputs,
                                             .is_aligned = state.parts.has_value(),
                                             .loss = state.vocabulary->loss_of(criterion)});
    step.set_vocabulary(&*passes);
  }
  MasterParameters* masters = plan.trains && !state.offload ? boosted.optimizer->masters() : nullptr;
  if (state.gathered && masters) state.gathered->release_shard(*masters);
  std::optional<EntryReads> reads;
  if (plan.trains && !state.documents_checked) reads.emplace();
  const bool done = run(step, state, plan, options);
  if (done) step.finish();
  if (plan.trains) state.accumulation->add(batch.global_samples, step.loss_count(), step.has_graph());
  const bool aborted = end_step(state, plan, options, done);
  if (aborted) return {.aborted = true};
  if (reads) warn_of_unread_documents(given, *reads, mesh_);
  state.documents_checked = state.documents_checked || plan.trains;
  if (plan.syncs) audit_when_due(state, boosted);

  const std::int64_t counted = step.loss_count();
  StepResult result;
  if (options.return_outputs) result.outputs = step.outputs();
  if (!stages_.holds_last()) result.outputs = {};
  if (options.return_loss && criterion) {
    TotalLoss loss = read_loss(step.losses(), counted, plan.syncs ? boosted.optimizer.get() : nullptr,
                               plan.syncs ? &*state.routers : nullptr, state.loss_names, mesh_);
    if (options.broadcast_loss || stages_.holds_last()) {
      result.tokens = static_cast<std::int64_t>(loss.count);
      result.loss = loss.count > 0 ? loss.sum / loss.count : 0.0;
      result.experts = std::move(loss.experts);
      for (const auto& [name, sum] : loss.added) result.added_losses[name] = loss.count > 0 ? sum / loss.count : 0.0;
    }
  }
  if (plan.syncs) report_times();
  return result;
}

// A call that only adds to a step's gradients reads nothing back: it would have to wait for a device's times.
void HybridParallelPlugin::report_times() {
  if (!times_) return;
  for (const auto& [action, start, end] : times_->take()) observer_(action, start, end);
}

void HybridParallelPlugin::set_observer(ActionObserver observer) {
  observer_ = std::move(observer);
  times_ = observer_ ? schedule::action_times(world_.device()) : nullptr;
}

// As far as this rank can tell.
HybridParallelPlugin::StepPlan HybridParallelPlugin::plan_call(ModelState& state, const Boosted& boosted,
                                                               const Criterion& criterion, std::int64_t samples,
                                                               const ExecuteOptions& options) {
  StepPlan plan{.trains = boosted.optimizer && !options.forward_only, .microbatches = microbatches(samples)};
  if (!plan.trains) return plan;
  if (!criterion)
    throw UsageError(
        {"execute_pipeline", "training needs a criterion", "", "pass one to boost() or in ExecuteOptions::criterion"});
  state.accumulation->prepare();
  const bool no_sync = *no_sync_guards_ + *state.no_sync_guards > 0;
  plan.syncs = !no_sync;
  plan.joins = state.accumulation->under_way();
  plan.adds = no_sync || plan.joins;
  return plan;
}

// With the numbers of all ranks.
void HybridParallelPlugin::complete_plan(StepPlan& plan, const ModelState& state, const StepCounts& counts,
                                         const Batch& batch) const {
  // Replicas that compute each other's tokens, or compare each other's samples, run the same number of microbatches.
  const bool meet = mesh_.mesh().has_expert_view() || state.compares_samples;
  if (meet) plan.microbatches = static_cast<int>(counts.most_microbatches);
  const bool equal = counts.equal_microbatches || meet;
  // Replicas with different numbers of microbatches communicate before and after them only.
  if (state.shards)
    plan.gather =
        equal ? schedule::gather_of(config_.parallel.gather, mesh_.size(axis::kPipeline)) : schedule::Gather::kAround;
  plan.is_full = plan.microbatches <= 1 && batch.samples == batch.global_samples && !plan.adds;
  if (plan.trains && state.accumulation->gradients().scatters())
    plan.scattering = equal ? StepPlan::Scattering::kAfterEachBackward : StepPlan::Scattering::kAfterTheStep;
}

// Gradients may be added from here on.
void HybridParallelPlugin::begin_step(ModelState& state, const Boosted& boosted, const StepPlan& plan,
                                      const StepCounts& counts, const ExecuteOptions& options) {
  refuse_parts_of_joint_loss(*state.model, plan.microbatches, mesh_);
  if (!std::exchange(state.keys_checked, true)) refuse_unused_keys(config_);
  if (!plan.joins && boosted.optimizer->state() != BoostedOptimizer::Gradients::kSummed) state.routers->begin();
  state.accumulation->take(counts.expected, options.step_tokens);
  state.accumulation->gradients().hold(plan.scattering == StepPlan::Scattering::kAfterTheStep);
}

nn::RouterBalance HybridParallelPlugin::balance_of(const ModelState& state, const Criterion& criterion,
                                                   const Batch& full, const StepPlan& plan,
                                                   const ExecuteOptions& options) const {
  if (!plan.trains) return {};
  const bool is_first_part = !state.parts || mesh_.coordinate(axis::kContext) == 0;
  return state.routers->balance(full, criterion, microbatches(full.samples), plan.adds, options,
                                stages_.holds_last() && is_first_part);
}

// Of the tokens that the ranks of tp have shards of; 0 where they have all.
std::int64_t HybridParallelPlugin::length_of_shards(const ModelState& state, const Batch& batch) const {
  if (!config_.parallel.sequence_parallel) return 0;
  return state.parts ? state.parts->tokens_here(batch) : batch.tokens_per_sample;
}

PipelineStep HybridParallelPlugin::make_step(ModelState& state, const Criterion& criterion, const Batch& batch,
                                             const StepPlan& plan, const ExecuteOptions& options,
                                             const nn::RouterBalance& balance) {
  std::vector<Batch> microbatches;
  for (const auto& [begin, end] : split_evenly(batch.samples, plan.microbatches))
    microbatches.push_back(slice(batch, begin, end));
  while (static_cast<int>(microbatches.size()) < plan.microbatches)
    microbatches.push_back(slice(batch, batch.samples, batch.samples));
  Accumulation* accumulation = state.accumulation.get();
  const RandomContext random{.seed = config_.train.seed,
                             .step = static_cast<std::uint64_t>(accumulation ? accumulation->step() : 0),
                             .first_sample = (accumulation ? accumulation->samples_of_step() : 0) + batch.first_sample,
                             .sequence_length = length_of_shards(state, batch)};
  const auto check_outputs = [this, &state](const TensorDict& outputs) {
    state.outputs_compared =
        check_full_outputs(outputs, state.split, state.model->stage_module_unmaterialized(), mesh_);
  };
  GradientBuffers* gradients = accumulation ? &accumulation->gradients() : nullptr;
  const bool interleaves =
      plan.trains && plan.microbatches > 0 && !state.gathered && !state.offload &&
      executor_for(state, plan.microbatches, /*forward_only=*/false, plan.gather).schedule().has_pairs();
  const bool scatters = plan.scattering == StepPlan::Scattering::kAfterEachBackward;
  StageGraphs* graphs = plan.trains && plan.microbatches > 0 ? state.graphs.get() : nullptr;
  if (graphs && interleaves)
    throw ConfigError({"train.device_graphs",
                       "CUDA graphs do not support schedules with pairs of passes that run in turn",
                       "a schedule without pairs", "remove train.device_graphs"});
  if (graphs) graphs->begin();
  if (state.gathered)
    state.gathered->begin({.layer_by_layer = plan.gather == schedule::Gather::kMicrobatch,
                           .gradients = plan.trains ? gradients : nullptr,
                           .reduces = plan.syncs});
  return PipelineStep(
      state.model->stage_module_unmaterialized(), state.parts ? state.parts->sharded_criterion(criterion) : criterion,
      state.split, std::move(microbatches),
      {.seed_gradient = plan.trains ? accumulation->seed() : 1,
       .random = random,
       .needs_gradients = plan.trains,
       .keep_outputs = options.return_outputs && stages_.holds_last(),
       .recomputation = recomputation_of(config_.schedule.recompute),
       .gradients = plan.syncs ? gradients : nullptr,
       .scattered = scatters ? gradients : nullptr,
       .values = gradients,
       .gathered = state.gathered,
       .recomputed_layers = config_.schedule.recompute_layers,
       .times = plan.trains && times_ && world_.device().is_cpu() ? &forward_times_ : nullptr,
       .observer = options.observer,
       .takes_losses = !plan.adds || options.step_tokens > 0,
       .is_full = plan.is_full,
       .balance = &balance,
       .choices = plan.trains ? state.routers->choices() : nullptr,
       .parts = state.parts ? &*state.parts : nullptr,
       .offload = plan.trains ? state.offload.get() : nullptr,
       .tensor_pieces = config_.parallel.tensor_overlap,
       .interleaves = interleaves,
       .graphs = graphs,
       .split_backwards = graphs ? split_backwards(executor_for(state, plan.microbatches, false, plan.gather)
                                                       .schedule()
                                                       .actions[stages_.pipeline_rank()])
                                 : std::set<std::pair<int, int>>(),
       .check_outputs =
           state.outputs_compared ? std::function<void(const TensorDict&)>() : std::function(check_outputs),
       .before_backward = options.before_backward});
}

// False where this rank has given the step up.
bool HybridParallelPlugin::run(PipelineStep& step, ModelState& state, const StepPlan& plan,
                               const ExecuteOptions& options) {
  bool done = true;
  if (plan.microbatches > 0) {
    const EvaluationGuard evaluation(state.model->module(), !plan.trains);
    // Collectives within a step: those of tp and cp, and under ZeRO 2 those of the batch axes.
    const bool scatters = plan.scattering == StepPlan::Scattering::kAfterEachBackward ||
                          (plan.gather && plan.gather != schedule::Gather::kAround);
    ProcessGroup& within = layer_group_ ? *layer_group_ : mesh_[axis::kTensor];
    // Experts are computed by ranks of several replicas.
    StopVote vote(scatters || mesh_.mesh().has_expert_view() ? mesh_.batch_group_and(axis::kTensor) : within,
                  options.stops);
    const auto stops = options.stops ? schedule::Executor::Stops(std::ref(vote)) : schedule::Executor::Stops();
    schedule::Executor& executor = executor_for(state, plan.microbatches, !plan.trains, plan.gather);
    StepOffload* offload = plan.trains ? state.offload.get() : nullptr;
    try {
      done = executor.run(step, plan.trains ? times_.get() : nullptr, stops);
    } catch (...) {
      if (offload) offload->give_up();
      throw;
    }
    if (offload) offload->finish();
  } else if (plan.gather) {
    for (const auto& action : schedule::actions_around(stages_.stages(), plan.trains)) step.extra(action);
  }
  if (plan.scattering == StepPlan::Scattering::kAfterTheStep)
    for (const int stage : stages_.stages()) state.accumulation->gradients().scatter_stage(stage);
  return done;
}

// True where a rank has given the step up. Gradients are unsharded afterwards, where the call ends a step.
bool HybridParallelPlugin::end_step(ModelState& state, const StepPlan& plan, const ExecuteOptions& options, bool done) {
  if (!plan.syncs && !options.stops) return false;
  StepEnd mine{.aborted = !done};
  if (plan.trains) mine = end_of(*state.accumulation, !done);
  const StepEnd end = agree_on_end(mine, mesh_);
  if (end.aborted) {
    if (plan.trains) state.accumulation->give_up();
    if (times_) times_->take();
  } else if (plan.syncs) {
    finish_gradients(state, end);
  }
  return end.aborted;
}

void HybridParallelPlugin::sync_gradients(Boosted& boosted) {
  ModelState& state = state_of(boosted);
  if (state.loop == Loop::kOwn && !(state.accumulation && state.accumulation->under_way()))
    return sync_own_loop(boosted, mesh_);
  if (!boosted.optimizer || !state.accumulation->under_way()) return;
  finish_gradients(state, agree_on_end(end_of(*state.accumulation, /*aborted=*/false), mesh_));
  audit_when_due(state, boosted);
  report_times();
}

void HybridParallelPlugin::finish_gradients(ModelState& state, const StepEnd& end) {
  state.routers->sync();
  state.accumulation->finish(end.counted, end.unsent);
}

void HybridParallelPlugin::audit_when_due(const ModelState& state, Boosted& boosted) {
  const int every = config_.train.audit_every;
  if (every > 0 && (state.accumulation->step() + 1) % every == 0) audit(boosted);
}

void HybridParallelPlugin::audit(Boosted& boosted) {
  if (!boosted.optimizer) return;
  boosted.optimizer->wait();
  boosted.optimizer->gradients().complete();
  boosted.model->materialize_shard();
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

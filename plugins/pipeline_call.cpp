#include "gantry/plugins/pipeline_call.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/pipeline/executor.h"
#include "gantry/plugins/joint_samples.h"
#include "gantry/plugins/model_setup.h"
#include "gantry/plugins/mtp_labels.h"
#include "gantry/plugins/prepared_batch.h"
#include "gantry/plugins/replica_audit.h"
#include "gantry/plugins/step/step_parts.h"
#include "gantry/plugins/stop_vote.h"
#include "gantry/plugins/user_checks.h"
#include "gantry/tensors/entry_reads.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using Scattering = CallPlan::Scattering;

// Such a loss is not the sum of the losses of its parts.
void refuse_parts_of_joint_loss(const BoostedModel& model, int microbatches, const ProcessGroupMesh& mesh) {
  const StageModule& module = model.stage_module_unmaterialized();
  const std::string key = module.split().joint_loss;
  const int stages = module.num_stages(), replicas = mesh.batch_group().size();
  if (key.empty() || (stages == 1 && replicas == 1 && microbatches <= 1)) return;
  throw ConfigError(
      {key,
       fmt::format(
           "this loss covers all layers and samples at once, but there are {} stages, {} replicas and {} microbatches",
           stages, replicas, microbatches),
       "one of each", "set it to false, or train on one stage with one microbatch"});
}

}  // namespace

PipelineCall::PipelineCall(ModelState& state, Boosted& boosted, const ExecuteOptions& options)
    : state_(state),
      plugin_(*state.plugin),
      boosted_(boosted),
      options_(options),
      criterion_(options.criterion ? options.criterion : boosted.criterion) {}

StepResult PipelineCall::run(const Batch& given) {
  Batch batch = given;
  if (state_.parts) state_.parts->require(criterion_);
  if (options_.observer && state_.vocabulary)
    throw ConfigError({"parallel.vocabulary", "the value is pipeline, but the outputs of modules are observed",
                       "stages for gantry compare, and for the outputs of routers",
                       "remove parallel.vocabulary, which does not change the loss, gradients or logits"});
  plan(given.samples);
  const StepCounts counts = agree_on_counts(
      batch, {.microbatches = plan_.microbatches, .trains = plan_.trains, .syncs = plan_.syncs, .adds = plan_.joins},
      plugin_.stages.holds_last() ? criterion_ : Criterion(), state_.model->stage_module_unmaterialized(),
      plugin_.options.axes.tensor.sequence_parallel, plugin_.mesh);
  check_batch(batch);
  if (!state_.inputs_compared) {
    check_equal_inputs(batch.tensors, plugin_.mesh, axis::kTensor);
    if (state_.parts) check_equal_inputs(batch.tensors, plugin_.mesh, axis::kContext);
  }
  state_.inputs_compared = true;
  if (const int depths = mtp_depths(); depths > 0) add_mtp_tokens(batch, criterion_, depths);
  const Batch full = batch;
  if (state_.parts) batch = state_.parts->shard(std::move(batch), criterion_);
  const PreparedBatch prepared(batch, plugin_.world.device(), state_.real_type);
  batch.tensors = prepared.tensors;
  batch.full = prepared.full;

  complete_plan(counts, batch);
  if (state_.compares_samples) refuse_parts_of_samples(plan_.microbatches, plan_.adds);
  if (plan_.trains) begin_step(counts);
  const nn::RouterBalance balance = balance_of(full);
  const std::vector<Batch> microbatches = microbatches_of(batch);
  StepCore core = core_of(batch, microbatches, balance);
  core.settings.mtp_ratios = mtp_ratios_of(full);
  PipelineStep step = make_step(core);
  MasterParameters* masters = plan_.trains && !state_.offload ? boosted_.optimizer->masters() : nullptr;
  if (state_.gathered && masters) state_.gathered->release_shard(*masters);
  std::optional<EntryReads> reads;
  if (plan_.trains && !state_.documents_checked) reads.emplace();
  const bool done = run_actions(step);
  if (plan_.trains) state_.accumulation->add(batch.global_samples, step.loss_count(), step.has_graph());
  if (end_step(done)) return {.aborted = true};
  if (reads) warn_of_unread_documents(given, *reads, plugin_.mesh);
  state_.documents_checked = state_.documents_checked || plan_.trains;
  if (plan_.syncs) state_.audit_when_due();
  StepResult result = result_of(step);
  result.images = counts.images;
  // A call that only adds to a step's gradients reads nothing back, because it would have to wait for the
  // times of a device.
  if (plan_.syncs) plugin_.report_times();
  return result;
}

StepResult PipelineCall::result_of(const PipelineStep& step) {
  const bool is_last = plugin_.stages.holds_last();
  StepResult result;
  // All ranks of a pipeline that share the vocabulary compute the outputs together.
  if (options_.return_outputs) result.outputs = step.outputs();
  if (!is_last) result.outputs = {};
  if (!options_.return_loss || !criterion_) return result;
  TotalLoss loss = read_loss(step.losses(), step.loss_count(), plan_.syncs ? boosted_.optimizer.get() : nullptr,
                             plan_.syncs ? &*state_.routers : nullptr, state_.loss_names, plugin_.mesh);
  if (!options_.broadcast_loss && !is_last) return result;
  result.tokens = static_cast<std::int64_t>(loss.count);
  result.loss = loss.count > 0 ? loss.sum / loss.count : 0.0;
  result.experts = std::move(loss.experts);
  for (const auto& [name, sum] : loss.added) result.added_losses[name] = loss.count > 0 ? sum / loss.count : 0.0;
  return result;
}

// Plans the call as far as this rank knows.
void PipelineCall::plan(std::int64_t samples) {
  plan_.trains = boosted_.optimizer && !options_.forward_only;
  plan_.microbatches = plugin_.schedules.microbatches(plugin_.stages.num_stages(), samples);
  if (!plan_.trains) return;
  if (!criterion_)
    throw UsageError(
        {"execute_pipeline", "training needs a criterion", "", "pass one to boost() or in ExecuteOptions::criterion"});
  state_.accumulation->prepare();
  const bool no_sync = *plugin_.no_sync_guards + *state_.no_sync_guards > 0;
  plan_.syncs = !no_sync;
  plan_.joins = state_.accumulation->under_way();
  plan_.adds = no_sync || plan_.joins;
}

// Completes the plan with the numbers of all ranks.
void PipelineCall::complete_plan(const StepCounts& counts, const Batch& batch) {
  // Replicas that compute tokens or compare samples of each other run the same number of microbatches.
  const bool meet = plugin_.mesh.mesh().has_expert_view() || state_.compares_samples;
  if (meet) plan_.microbatches = static_cast<int>(counts.most_microbatches);
  const bool equal = counts.equal_microbatches || meet;
  // Replicas with different numbers of microbatches communicate before and after them only.
  if (state_.shards)
    plan_.gather = equal ? plugin_.options.zero.gather.value_or(schedule::auto_gather(plugin_.stages.pipeline_size()))
                         : schedule::Gather::kAround;
  sample_share_ = share_of_sample(counts);
  plan_.is_full = plan_.microbatches <= 1 && batch.samples == batch.global_samples && !plan_.adds;
  if (plan_.trains && state_.accumulation->gradients().scatters())
    plan_.scattering = equal ? Scattering::kAfterEachBackward : Scattering::kAfterTheStep;
}

// No value if the step's number of tokens or samples is unknown before its end.
std::optional<double> PipelineCall::share_of_sample(const StepCounts& counts) const {
  if (options_.step_tokens == 0 && (plan_.adds || !counts.is_exact)) return std::nullopt;
  if (options_.step_samples == 0 && plan_.adds) return std::nullopt;
  const double tokens = options_.step_tokens > 0 ? static_cast<double>(options_.step_tokens) : counts.expected;
  const std::int64_t samples = options_.step_samples > 0 ? options_.step_samples : counts.global_samples;
  // Number of ranks that add the loss of one sample.
  const int parts = state_.parts ? state_.parts->group().size() : 1;
  return tokens / static_cast<double>(std::max<std::int64_t>(1, samples) * parts);
}

// From here on, gradients may be added.
void PipelineCall::begin_step(const StepCounts& counts) {
  refuse_parts_of_joint_loss(*state_.model, plan_.microbatches, plugin_.mesh);
  if (plugin_.before_first_step) std::exchange(plugin_.before_first_step, {})();
  if (!plan_.joins && boosted_.optimizer->state() != BoostedOptimizer::Gradients::kSummed) state_.routers->begin();
  state_.accumulation->take(counts.expected, options_.step_tokens);
  state_.accumulation->gradients().hold(plan_.scattering == Scattering::kAfterTheStep);
  if (!plan_.adds) plugin_.forward_times = {};
}

nn::RouterBalance PipelineCall::balance_of(const Batch& full) const {
  if (!plan_.trains) return {};
  const bool is_first_part = !state_.parts || plugin_.mesh.coordinate(axis::kContext) == 0;
  return state_.routers->balance(full, criterion_,
                                 plugin_.schedules.microbatches(plugin_.stages.num_stages(), full.samples), plan_.adds,
                                 options_, plugin_.stages.holds_last() && is_first_part);
}

// 0 if the call does not train.
int PipelineCall::mtp_depths() const {
  return plan_.trains ? state_.model->stage_module_unmaterialized().split().mtp_depths : 0;
}

std::vector<double> PipelineCall::mtp_ratios_of(const Batch& full) const {
  const int depths = mtp_depths();
  if (depths == 0) return {};
  if (plan_.adds)
    throw UsageError({"multi-token prediction",
                      "the step has several calls, whose numbers of labels are not known together",
                      "one call of execute_pipeline per step",
                      "pass the full batch to one call, which splits it into microbatches"});
  const bool is_first_part = !state_.parts || plugin_.mesh.coordinate(axis::kContext) == 0;
  return mtp_ratios(full, criterion_, depths, plugin_.stages.holds_last() && is_first_part, plugin_.mesh);
}

std::vector<Batch> PipelineCall::microbatches_of(const Batch& batch) const {
  std::vector<Batch> microbatches;
  for (const auto& [begin, end] : split_evenly(batch.samples, plan_.microbatches))
    microbatches.push_back(slice(batch, begin, end));
  while (static_cast<int>(microbatches.size()) < plan_.microbatches)
    microbatches.push_back(slice(batch, batch.samples, batch.samples));
  return microbatches;
}

RandomContext PipelineCall::random_of(const Batch& batch) const {
  const Accumulation* accumulation = state_.accumulation.get();
  std::int64_t tokens = 0;  // tokens that the ranks of tp share; 0: each rank has all tokens
  if (plugin_.options.axes.tensor.sequence_parallel)
    tokens = state_.parts ? state_.parts->tokens_here(batch) : batch.tokens_per_sample;
  return {.seed = plugin_.options.seed,
          .step = static_cast<std::uint64_t>(accumulation ? accumulation->step() : 0),
          .first_sample = (accumulation ? accumulation->samples_of_step() : 0) + batch.first_sample,
          .sequence_length = tokens};
}

StepCore PipelineCall::core_of(const Batch& batch, const std::vector<Batch>& microbatches,
                               const nn::RouterBalance& balance) const {
  StepSettings settings{.needs_gradients = plan_.trains,
                        .seed_gradient = plan_.trains ? state_.accumulation->seed() : 1,
                        .sample_share = sample_share_,
                        .keeps_outputs = options_.return_outputs && plugin_.stages.holds_last(),
                        .logit_limit = criterion_.logit_limit().value_or(plugin_.logit_limit),
                        .random = random_of(batch),
                        .recomputation = plugin_.options.recompute.how,
                        .recomputed_layers = plugin_.options.recompute.layers,
                        .balance = &balance,
                        .choices = plan_.trains ? state_.routers->choices() : nullptr,
                        .parts = state_.parts ? &*state_.parts : nullptr,
                        .tensor_pieces = plugin_.options.axes.tensor.overlap};
  MicrobatchLosses losses(
      state_.parts ? state_.parts->sharded_criterion(criterion_) : criterion_, state_.split, microbatches.size(),
      {.seed_gradient = settings.seed_gradient, .needs_gradients = plan_.trains, .is_full = plan_.is_full});
  return {.model = state_.model->stage_module_unmaterialized(),
          .split = state_.split,
          .microbatches = microbatches,
          .settings = std::move(settings),
          .losses = std::move(losses),
          .outputs = std::vector<TensorDict>(microbatches.size())};
}

PipelineStep PipelineCall::make_step(StepCore& core) {
  PipelineStep::Options options{
      .takes_losses = !plan_.adds || options_.step_tokens > 0,
      .defers_logits = !options_.observer && !state_.vocabulary && !(plan_.trains && state_.graphs),
      .before_backward = options_.before_backward};
  if (!state_.outputs_compared)
    options.check_outputs = [this](const TensorDict& outputs) {
      state_.outputs_compared =
          check_full_outputs(outputs, state_.split, state_.model->stage_module_unmaterialized(), plugin_.mesh);
    };
  return {core, step_parts(state_, plan_, options_, criterion_, core), std::move(options)};
}

// Returns false if this rank has aborted the step.
bool PipelineCall::run_actions(PipelineStep& step) {
  bool done = true;
  if (plan_.microbatches > 0) {
    const EvaluationGuard evaluation(state_.model->module(), !plan_.trains);
    // The collectives within a step are those of tp and cp and, with ZeRO 2, those of the batch axes.
    const bool scatters = plan_.scattering == Scattering::kAfterEachBackward ||
                          (plan_.gather && plan_.gather != schedule::Gather::kAround);
    const ProcessGroupMesh& mesh = plugin_.mesh;
    ProcessGroup& within = plugin_.layer_group ? *plugin_.layer_group : mesh[axis::kTensor];
    // Ranks of several replicas compute the experts.
    StopVote vote(scatters || mesh.mesh().has_expert_view() ? mesh.batch_group_and(axis::kTensor) : within,
                  options_.stops);
    const auto stops = options_.stops ? schedule::Executor::Stops(std::ref(vote)) : schedule::Executor::Stops();
    try {
      done = executor().run(step, plan_.trains ? plugin_.times.get() : nullptr, stops);
    } catch (...) {
      step.give_up();
      throw;
    }
  } else if (plan_.gather) {
    for (const auto& action : schedule::actions_around(plugin_.stages.stages(), plan_.trains)) step.extra(action);
  }
  step.finish(done);
  if (plan_.scattering == Scattering::kAfterTheStep)
    for (const int stage : plugin_.stages.stages()) state_.accumulation->gradients().scatter_stage(stage);
  return done;
}

// Returns true if any rank has aborted the step. If the call ends a step, the gradients are complete
// afterwards.
bool PipelineCall::end_step(bool done) {
  if (!plan_.syncs && !options_.stops) return false;
  StepEnd mine{.aborted = !done};
  if (plan_.trains) mine = state_.end_of_step(!done);
  const StepEnd end = agree_on_end(mine, plugin_.mesh);
  if (end.aborted) {
    if (plan_.trains) state_.accumulation->give_up();
    if (plugin_.times) plugin_.times->take();
  } else if (plan_.syncs) {
    state_.finish_gradients(end);
  }
  return end.aborted;
}

}  // namespace gantry

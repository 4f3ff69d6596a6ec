#include "gantry/plugins/pipeline_step.h"

#include <algorithm>
#include <fmt/format.h>
#include <type_traits>

#include "gantry/core/error.h"
#include "gantry/core/steady_seconds.h"
#include "gantry/nn/output_observer.h"
#include "gantry/tensors/exceptions.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

std::string shape_key_of(const Batch& batch, bool needs_gradients) {
  std::string key = needs_gradients ? "train" : "evaluate";
  for (const auto& [name, tensor] : batch.tensors) {
    key += ' ' + name;
    for (const std::int64_t size : tensor.sizes()) key += fmt::format(":{}", size);
  }
  return key;
}

// Modules report their outputs that are split over tp.
void report_outputs(const TensorDict& outputs, const SplitOutputs& split, nn::OutputObserver* observer) {
  if (!observer) return;
  for (const auto& [name, tensor] : outputs)
    if (!split.contains(name)) observer->model_output(name, tensor);
}

}  // namespace

PipelineStep::PipelineStep(const StageModule& model, Criterion criterion, const SplitOutputs& split,
                           std::vector<Batch> microbatches, Options options)
    : model_(model),
      split_(split),
      microbatches_(std::move(microbatches)),
      options_(std::move(options)),
      losses_(std::move(criterion), split, microbatches_.size(),
              {.seed_gradient = options_.seed_gradient,
               .needs_gradients = options_.needs_gradients,
               .is_full = options_.is_full}),
      outputs_(microbatches_.size()) {
  for (const Batch& microbatch : microbatches_)
    shape_keys_.push_back(shape_key_of(microbatch, options_.needs_gradients));
  if (options_.parts)
    for (const Batch& microbatch : microbatches_) sequences_.push_back(options_.parts->part_of(microbatch));
}

// "h.3 (mlp)", or "h 0 to 3" where no layer runs.
std::string PipelineStep::place_of(int stage, const ForwardReport& report) const {
  if (report.layer >= 0) {
    const std::string layer = layer_path(model_.lists(), report.layer);
    return report.part.empty() ? layer : fmt::format("{} ({})", layer, report.part);
  }
  const LayerRange range = model_.layer_ranges().at(stage);
  if (range.size() == 0) return "no layers";
  if (model_.lists().size() == 1)
    return fmt::format("{} {} to {}", model_.lists().front().path, range.begin, range.end - 1);
  return fmt::format("{} to {}", layer_path(model_.lists(), range.begin), layer_path(model_.lists(), range.end - 1));
}

// Runs a part of the step. What is thrown that is no error of Gantry's says where: the stage, its layers or the one
// that runs, the microbatch, and what was given to it.
template <class Run>
auto PipelineStep::named(const char* what, int stage, int microbatch, const TensorDict& given,
                         const ForwardReport& report, Run run) const try {
  return run();
} catch (const Error&) {
  throw;
} catch (...) {
  const Failure failure = describe_exception(std::current_exception());
  if (failure.exit_code != InternalError::kExitCode) throw;
  throw UserError(
      {fmt::format("{} of stage {} ({}), microbatch {}", what, stage, place_of(stage, report), microbatch),
       fmt::format("it threw \"{}\" on {}", failure.line, gantry::describe(given)), "",
       "check the modules of this stage, the inputs that the policy's forward passes to them, and the shard plan"});
}

template <class Run>
auto PipelineStep::gathered(int stage, GatheredStages::Kind kind, bool is_last, Run run) const {
  if (!options_.gathered) return run();
  options_.gathered->begin(stage, kind, is_last);
  if constexpr (std::is_void_v<decltype(run())>) {
    run();
    options_.gathered->end();
  } else {
    auto made = run();
    options_.gathered->end();
    return made;
  }
}

StageOutput PipelineStep::forward(int stage, int microbatch, TensorDict input) {
  if (options_.values) options_.values->wait_values(stage);
  const TensorDict given = stage == 0 ? microbatches_[microbatch].tensors : input;
  const SavedTensorsScope saved(options_.offload ? options_.offload->begin_forward(stage, microbatch) : nullptr);
  ForwardReport report;
  StageRecording* recording = take_recording(stage, microbatch, input);
  return named("forward", stage, microbatch, given, report, [&] {
    if (recording) return replay_forward(*recording, stage, microbatch, input);
    return gathered(stage, GatheredStages::Kind::kForward, /*is_last=*/false,
                    [&] { return timed_compute(stage, microbatch, input, report); });
  });
}

StageOutput PipelineStep::timed_compute(int stage, int microbatch, const TensorDict& input, ForwardReport& report) {
  if (!options_.times) return compute(stage, microbatch, input, report);
  schedule::ForwardTimes& times = *options_.times;
  times.layers.resize(model_.layer_ranges().back().end, 0);
  const double begin = steady_seconds();
  double first = -1, last = begin;
  double others = partner_seconds_;
  report.layer_ran = [&](int layer, double from, double to) {
    times.layers.at(layer) += to - from - (partner_seconds_ - others);
    others = partner_seconds_;
    if (first < 0) first = from;
    last = to;
  };
  StageOutput output = compute(stage, microbatch, input, report);
  if (stage == 0 && first >= 0) times.before += first - begin;
  if (stage == model_.num_stages() - 1) times.after += steady_seconds() - last;
  return output;
}

void PipelineStep::extra(const schedule::Action& action) {
  if (schedule::is_offload_action(action.kind)) return options_.offload->run(action);
  options_.gathered->run(action);
}

StageOutput PipelineStep::compute(int stage, int microbatch, const TensorDict& input, ForwardReport& report) {
  const Batch& batch = microbatches_[microbatch];
  RandomContext random = options_.random;
  random.first_sample += batch.first_sample - microbatches_.front().first_sample;
  const nn::ObservedForward observed(options_.observer, batch.first_sample, batch.samples);
  TensorDict added;
  std::shared_ptr<LayerWatch> watch = options_.gathered;
  std::shared_ptr<SplitBackward> split;
  if (options_.interleaves && options_.needs_gradients) {
    watch = split = splits_[{stage, microbatch}] = std::make_shared<SplitBackward>();
    split->begin_forward(&added, [this] { step_of_partner(); });
  }
  nn::DeferredLogits logits = deferrable_logits(stage, microbatch);
  const ForwardScope scope({.random = random,
                            .weight_gradients = options_.needs_gradients ? &stores_[{stage, microbatch}] : nullptr,
                            .observer = options_.observer,
                            .losses = &added,
                            .report = &report,
                            .watch = watch,
                            .balance = options_.balance,
                            .choices = options_.choices,
                            .tensor_pieces = options_.tensor_pieces,
                            .logits = logits.limit > 0 ? &logits : nullptr});

  TensorDict given = stage == 0 ? batch.tensors : input;
  if (options_.vocabulary && stage == 0) given.set("embedded", options_.vocabulary->embedded(microbatch));
  TensorDict result = model_.forward(stage, given,
                                     {.batch = batch.tensors,
                                      .recomputation = options_.recomputation,
                                      .recomputed_layers = options_.recomputed_layers,
                                      .sequence = sequences_.empty() ? nullptr : sequences_[microbatch]});
  if (split) split->end_forward(result);
  StageOutput output;
  if (stage == model_.num_stages() - 1 && options_.vocabulary) {
    options_.vocabulary->give_hidden(microbatch, result.at("hidden"));
    if (options_.needs_gradients) output.boundary = std::move(result);
  } else if (stage == model_.num_stages() - 1) {
    if (logits.are_deferred()) logits.hidden = result.at("hidden");
    if (options_.check_outputs && microbatch == 0 && !logits.are_deferred()) options_.check_outputs(result);
    report_outputs(result, split_, options_.observer);
    if (losses_.criterion())
      output.root = named("criterion", stage, microbatch, result, report,
                          [&] { return record_loss(microbatch, result, logits); });
    if (options_.keep_outputs)
      for (const auto& [name, tensor] : result) outputs_[microbatch].set(name, tensor.detach());
  } else {
    output.boundary = std::move(result);
  }
  if (!added.empty() && !options_.takes_losses)
    throw UsageError({"add_loss", "'" + added.begin()->first + "' is added, but the step has several calls",
                      "the number of tokens of the step before the first backward",
                      "pass ExecuteOptions::step_tokens to each call"});
  for (const auto& [name, loss] : added) {
    added_[name].push_back(loss.detach());
    has_graph_ = has_graph_ || loss.requires_grad();
    const torch::Tensor seeded = loss * options_.seed_gradient;
    output.root = output.root.defined() ? output.root + seeded : seeded;
  }
  return output;
}

// Without a limit if all of the logits are needed.
nn::DeferredLogits PipelineStep::deferrable_logits(int stage, int microbatch) const {
  const auto& form = losses_.criterion().deferred_logits();
  if (!form || stage != model_.num_stages() - 1 || options_.keep_outputs || options_.observer || options_.vocabulary ||
      options_.graphs)
    return {};
  const torch::Tensor labels = microbatches_[microbatch].tensors.get(form->labels);
  return {.rows = labels.defined() ? labels.numel() : 0, .limit = losses_.criterion().logit_limit()};
}

torch::Tensor PipelineStep::record_loss(int microbatch, const TensorDict& outputs, const nn::DeferredLogits& logits) {
  const Batch& batch = microbatches_[microbatch];
  const bool is_compared = batch.samples > 0 && (!options_.parts || options_.parts->compares_outputs());
  return is_compared ? losses_.record(microbatch, batch, outputs, logits) : losses_.record_none(microbatch, outputs);
}

// Unless it has begun, between a forward's parts.
void PipelineStep::announce_backward(int stage, int microbatch) const {
  if (!options_.before_backward) return;
  const auto found = splits_.find({stage, microbatch});
  if (found == splits_.end() || !found->second->has_begun()) options_.before_backward(stage, microbatch);
}

bool PipelineStep::is_last_backward(int stage) { return ++backwards_done_[stage] == microbatches_.size(); }

TensorDict PipelineStep::backward(int stage, int microbatch, const TensorDict& input, const StageOutput& output,
                                  const TensorDict& gradients) {
  announce_backward(stage, microbatch);
  if (options_.offload) options_.offload->wait(stage, microbatch);
  const bool completes = is_last_backward(stage);
  const bool last = completes && options_.gradients;
  // Parameters say one by one that they are ready; a recomputed layer may use one twice, so there the whole stage does.
  // Nor do they where a recording runs, or has run, their hooks.
  const bool is_recorded = recording_of(stage, microbatch);
  if (last && !is_recorded) options_.gradients->watch(options_.recomputation == Recomputation::kNone);
  TensorDict given =
      named("backward", stage, microbatch, stage == 0 ? microbatches_[microbatch].tensors : input, {}, [&] {
        if (is_recorded) return replay_backward(stage, microbatch, gradients, /*is_split=*/false);
        return gathered(stage, GatheredStages::Kind::kBackward, completes,
                        [&] { return differentiate(stage, microbatch, input, output, gradients); });
      });
  if (options_.vocabulary && stage == 0) options_.vocabulary->give_embedding_gradient(microbatch);
  if (last) options_.gradients->watch(false);
  if (last) options_.gradients->stage_ready(stage);
  if (options_.scattered) options_.scattered->scatter_stage(stage);
  return given;
}

TensorDict PipelineStep::backward_input(int stage, int microbatch, const TensorDict& input, const StageOutput& output,
                                        const TensorDict& gradients) {
  announce_backward(stage, microbatch);
  if (options_.offload) options_.offload->wait(stage, microbatch);
  auto& store = stores_[{stage, microbatch}];
  store.collect(true);
  TensorDict input_gradients =
      named("backward", stage, microbatch, stage == 0 ? microbatches_[microbatch].tensors : input, {}, [&] {
        if (recording_of(stage, microbatch)) return replay_backward(stage, microbatch, gradients, /*is_split=*/true);
        return gathered(stage, GatheredStages::Kind::kBackward, /*is_last=*/false,
                        [&] { return differentiate(stage, microbatch, input, output, gradients); });
      });
  store.collect(false);
  if (options_.vocabulary && stage == 0) options_.vocabulary->give_embedding_gradient(microbatch);
  return input_gradients;
}

TensorDict PipelineStep::differentiate(int stage, int microbatch, const TensorDict& input, const StageOutput& output,
                                       const TensorDict& gradients) {
  const auto found = splits_.find({stage, microbatch});
  if (found == splits_.end()) return run_backward(input, output, output_gradients(stage, microbatch, gradients));
  SplitBackward& split = *found->second;
  if (!split.has_begun()) split.begin(backward_roots(output, gradients));
  while (split.step()) {
  }
  splits_.erase(found);
  partner_.reset();
  return gradients_of(input);
}

// A stage's last backward runs in one piece: there parameters say one by one that they are ready.
void PipelineStep::offer_backward(const schedule::Action& backward, const StageOutput& output,
                                  const TensorDict& gradients) {
  const auto found = splits_.find({backward.stage, backward.microbatch});
  const bool completes =
      backward.kind == schedule::ActionKind::kBackward && backwards_done_[backward.stage] + 1 == microbatches_.size();
  if (found == splits_.end() || completes) return;
  announce_backward(backward.stage, backward.microbatch);
  found->second->begin(backward_roots(output, gradients));
  partner_ = backward;
}

void PipelineStep::step_of_partner() {
  if (!partner_) return;
  const double begin = steady_seconds();
  const ForwardScope apart(Forward{});  // it finds nothing of the forward that waits
  const std::pair key{partner_->stage, partner_->microbatch};
  SplitBackward& split = *splits_.at(key);
  auto& store = stores_[key];
  store.collect(partner_->kind == schedule::ActionKind::kInputGradient);
  const bool more = named("backward", key.first, key.second, {}, {}, [&] { return split.step(); });
  store.collect(false);
  if (!more) partner_.reset();
  partner_seconds_ += steady_seconds() - begin;
}

void PipelineStep::backward_weight(int stage, int microbatch) {
  auto* scattered = options_.scattered;
  named("backward of weights", stage, microbatch, microbatches_[microbatch].tensors, {}, [&] {
    if (StageRecording* recording = recording_of(stage, microbatch)) {
      recording->backward_weight();
      return end_recorded(stage, microbatch);
    }
    gathered(stage, GatheredStages::Kind::kWeights, /*is_last=*/false, [&] {
      stores_[{stage, microbatch}].run([&] {
        if (scattered) scattered->scatter_added(stage);
      });
    });
  });
  if (scattered) scattered->scatter_stage(stage);
  if (is_last_backward(stage) && options_.gradients) options_.gradients->stage_ready(stage);
}

// Reductions that the last backward launches are launched on every replica. Those within a step are let be:
// there all replicas give up together.
void PipelineStep::skip(schedule::ActionKind kind, int stage, int microbatch) {
  using enum schedule::ActionKind;
  const bool completes = kind == kBackward || kind == kWeightGradient;
  if (completes && is_last_backward(stage) && options_.gradients) options_.gradients->stage_ready(stage);
  if (!options_.vocabulary) return;
  VocabularyPasses& vocabulary = *options_.vocabulary;
  vocabulary.give_up();
  if (schedule::is_of_vocabulary(kind)) return vocabulary.run(kind, microbatch);
  const bool is_last = stage == model_.num_stages() - 1;
  if (kind == kForward && is_last) vocabulary.give_hidden(microbatch, {});
  if ((kind == kBackward || kind == kInputGradient) && stage == 0) vocabulary.give_embedding_gradient(microbatch);
}

void PipelineStep::run_vocabulary(schedule::ActionKind pass, int microbatch) {
  if (options_.values) options_.values->wait_values(0);  // rows and head are of every stage
  ForwardReport report;
  named("vocabulary", 0, microbatch, microbatches_[microbatch].tensors, report,
        [&] { options_.vocabulary->run(pass, microbatch); });
}

void PipelineStep::finish() {
  if (!options_.vocabulary) return;
  auto [sums, counts] = options_.vocabulary->losses();
  losses_.set(std::move(sums), std::move(counts));
}

// Of the last stage, whose output has its gradient from the head, where that is computed outside of it.
TensorDict PipelineStep::output_gradients(int stage, int microbatch, const TensorDict& given) {
  if (!options_.vocabulary || stage != model_.num_stages() - 1) return given;
  return {{"hidden", options_.vocabulary->hidden_gradient(microbatch)}};
}

StepLosses PipelineStep::losses() const { return {.criterion = losses_.sums(), .added = added_}; }

TensorDict PipelineStep::outputs() const {
  if (options_.vocabulary) return options_.vocabulary->outputs();
  TensorDict full;
  if (outputs_.empty()) return full;
  for (const auto& [name, first] : outputs_.front()) {
    std::vector<torch::Tensor> parts;
    for (const auto& outputs : outputs_) parts.push_back(outputs.at(name));
    torch::Tensor joined = first.dim() == 0 ? torch::stack(parts) : torch::cat(parts);
    if (const auto split = split_.find(name); split != split_.end() && split->second.placement.sharded()) {
      ProcessGroup& group = *split->second.group;
      Sizes sizes;
      for (int rank = 0; rank < group.size(); ++rank) sizes.push_back(split->second.placement.local_size(rank));
      joined = all_gather_along(group, joined, -1, sizes);
    }
    if (options_.parts) joined = options_.parts->join(joined, microbatches_.front().tokens_per_sample);
    full.set(name, joined);
  }
  return full;
}

}  // namespace gantry

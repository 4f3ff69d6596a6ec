#include "gantry/plugins/pipeline_step.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/plugins/step/error_place.h"
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

}  // namespace

PipelineStep::PipelineStep(StepCore& core, StepParts parts, Options options)
    : core_(core), parts_(std::move(parts)), options_(std::move(options)) {
  for (const Batch& microbatch : core_.microbatches)
    shape_keys_.push_back(shape_key_of(microbatch, core_.settings.needs_gradients));
  if (const SequenceParts* shared = core_.settings.parts)
    for (const Batch& microbatch : core_.microbatches) sequences_.push_back(shared->part_of(microbatch));
}

// Calls a function of each part, nested in the order of the parts, and `last` within the last one.
template <class Call, class Function, class Last>
auto PipelineStep::through(Call& call, Function function, const Last& last, std::size_t part) -> decltype(last()) {
  if (part == parts_.size()) return last();
  return (parts_[part].get()->*function)(call, [&] { return through(call, function, last, part + 1); });
}

StageCall PipelineStep::call_of(int stage, int microbatch) const {
  return {.stage = stage,
          .microbatch = microbatch,
          .is_first = stage == 0,
          .is_last = stage == core_.model.num_stages() - 1};
}

StageOutput PipelineStep::forward(int stage, int microbatch, TensorDict input) {
  const StepSettings& settings = core_.settings;
  const Batch& batch = core_.microbatches[microbatch];
  ForwardCall call{call_of(stage, microbatch), std::move(input), {}};
  call.given = call.is_first ? batch.tensors : call.input;
  call.scope = {.random = settings.random,
                .weight_gradients = settings.needs_gradients ? &stores_[{stage, microbatch}] : nullptr,
                .losses = &call.added,
                .step_share = share_of(batch),
                .report = &call.report,
                .balance = settings.balance,
                .choices = settings.choices,
                .tensor_pieces = settings.tensor_pieces,
                .mtp_ratios = settings.mtp_ratios.empty() ? nullptr : &settings.mtp_ratios};
  call.scope.random->first_sample += batch.first_sample - core_.microbatches.front().first_sample;
  return with_place("forward", core_.model, call, call.is_first ? batch.tensors : call.input, call.report,
                    [&] { return through(call, &StepPart::forward, [&] { return compute(call); }); });
}

std::optional<double> PipelineStep::share_of(const Batch& microbatch) const {
  const auto& each = core_.settings.sample_share;
  return each ? std::optional(*each * static_cast<double>(microbatch.samples)) : std::nullopt;
}

StageOutput PipelineStep::compute(ForwardCall& call) {
  const StepSettings& settings = core_.settings;
  call.logits = deferrable_logits(call);
  if (call.logits.limit > 0) call.scope.logits = &call.logits;
  const ForwardScope scope(call.scope);
  TensorDict result = through(call, &StepPart::model, [&] {
    return core_.model.forward(call.stage, call.given,
                               {.batch = core_.microbatches[call.microbatch].tensors,
                                .recomputation = settings.recomputation,
                                .recomputed_layers = settings.recomputed_layers,
                                .sequence = sequences_.empty() ? nullptr : sequences_[call.microbatch]});
  });
  StageOutput output;
  if (!call.is_last)
    output.boundary = std::move(result);
  else if (std::ranges::none_of(parts_, [&](auto& part) { return part->takes_outputs(call, result, output); }))
    output.root = loss_of(call, result);
  add_losses(call, output);
  return output;
}

// Has no limit if all logits are needed.
nn::DeferredLogits PipelineStep::deferrable_logits(const ForwardCall& call) const {
  const auto& form = core_.losses.criterion().deferred_logits();
  if (!form || !call.is_last || !options_.defers_logits || core_.settings.keeps_outputs) return {};
  const torch::Tensor labels = core_.microbatches[call.microbatch].tensors.get(form->labels);
  return {.rows = labels.defined() ? labels.numel() : 0, .limit = core_.settings.logit_limit};
}

// The root of the backward of the last stage; undefined without a criterion.
torch::Tensor PipelineStep::loss_of(ForwardCall& call, const TensorDict& outputs) {
  nn::DeferredLogits& logits = call.logits;
  if (logits.are_deferred()) logits.hidden = outputs.at("hidden");
  if (options_.check_outputs && call.microbatch == 0 && !logits.are_deferred()) options_.check_outputs(outputs);
  torch::Tensor root;
  if (core_.losses.criterion())
    root = with_place("criterion", core_.model, call, outputs, call.report, [&] {
      const Batch& batch = core_.microbatches[call.microbatch];
      const SequenceParts* shared = core_.settings.parts;
      const bool is_compared = batch.samples > 0 && (!shared || shared->compares_outputs());
      return is_compared ? core_.losses.record(call.microbatch, batch, outputs, logits)
                         : core_.losses.record_none(call.microbatch, outputs);
    });
  if (core_.settings.keeps_outputs)
    for (const auto& [name, tensor] : outputs) core_.outputs[call.microbatch].set(name, tensor.detach());
  return root;
}

void PipelineStep::add_losses(const ForwardCall& call, StageOutput& output) {
  if (!call.added.empty() && !options_.takes_losses)
    throw UsageError({"add_loss", "'" + call.added.begin()->first + "' is added, but the step has several calls",
                      "the number of tokens of the step before the first backward",
                      "pass ExecuteOptions::step_tokens to each call"});
  for (const auto& [name, loss] : call.added) {
    added_[name].push_back(loss.detach());
    has_graph_ = has_graph_ || loss.requires_grad();
    const torch::Tensor seeded = loss * core_.settings.seed_gradient;
    output.root = output.root.defined() ? output.root + seeded : seeded;
  }
}

// Counts a computation that adds the gradients of a stage's parameters. Returns true for the last one.
bool PipelineStep::ends_gradients(int stage) { return ++backwards_done_[stage] == core_.microbatches.size(); }

// A backward that has started during a forward was announced then.
void PipelineStep::announce(const StageCall& backward) {
  if (announced_.insert({backward.stage, backward.microbatch}).second && options_.before_backward)
    options_.before_backward(backward.stage, backward.microbatch);
}

TensorDict PipelineStep::backward(int stage, int microbatch, const TensorDict& input, const StageOutput& output,
                                  const TensorDict& gradients) {
  BackwardCall call{call_of(stage, microbatch),   input, output, gradients, /*is_split=*/false,
                    &stores_[{stage, microbatch}]};
  announce(call);
  call.completes = ends_gradients(stage);
  return differentiate(std::move(call));
}

TensorDict PipelineStep::backward_input(int stage, int microbatch, const TensorDict& input, const StageOutput& output,
                                        const TensorDict& gradients) {
  BackwardCall call{call_of(stage, microbatch),   input, output, gradients, /*is_split=*/true,
                    &stores_[{stage, microbatch}]};
  announce(call);
  return differentiate(std::move(call));
}

TensorDict PipelineStep::differentiate(BackwardCall call) {
  const TensorDict& given = call.is_first ? core_.microbatches[call.microbatch].tensors : call.input;
  call.store->collect(call.is_split);
  TensorDict made = with_place("backward", core_.model, call, given, {}, [&] {
    return through(call, &StepPart::backward, [&] { return run_backward(call.input, call.output, call.gradients); });
  });
  call.store->collect(false);
  return made;
}

void PipelineStep::offer_backward(const schedule::Action& backward, const StageOutput& output,
                                  const TensorDict& gradients) {
  const int stage = backward.stage;
  const TensorDict no_input;  // its gradients are read at the end of the backward
  BackwardCall call{call_of(stage, backward.microbatch),
                    no_input,
                    output,
                    gradients,
                    backward.kind == schedule::ActionKind::kInputGradient,
                    &stores_[{stage, backward.microbatch}]};
  call.completes = !call.is_split && backwards_done_[stage] + 1 == core_.microbatches.size();
  if (std::ranges::any_of(parts_, [&](auto& part) { return part->offer(call); })) announce(call);
}

void PipelineStep::backward_weight(int stage, int microbatch) {
  WeightsCall call{call_of(stage, microbatch)};
  call.completes = ends_gradients(stage);
  with_place("backward of weights", core_.model, call, core_.microbatches[microbatch].tensors, {}, [&] {
    through(call, &StepPart::weights, [&] { stores_[{stage, microbatch}].run(call.added); });
  });
}

void PipelineStep::run_vocabulary(schedule::ActionKind pass, int microbatch) {
  PassCall call{call_of(0, microbatch), pass};
  with_place("vocabulary", core_.model, call, core_.microbatches[microbatch].tensors, {},
             [&] { through(call, &StepPart::pass, [] {}); });
}

void PipelineStep::skip(schedule::ActionKind kind, int stage, int microbatch) {
  using enum schedule::ActionKind;
  StageCall call = call_of(stage, microbatch);
  call.completes = (kind == kBackward || kind == kWeightGradient) && ends_gradients(stage);
  for (auto& part : parts_) part->skip(kind, call);
}

void PipelineStep::extra(const schedule::Action& action) {
  if (std::ranges::none_of(parts_, [&](auto& part) { return part->run(action); })) StageRuntime::extra(action);
}

void PipelineStep::finish(bool done) {
  for (auto& part : parts_) part->finish(done);
}

void PipelineStep::give_up() noexcept {
  for (auto& part : parts_) part->give_up();
}

TensorDict PipelineStep::outputs() const {
  for (const auto& part : parts_)
    if (auto made = part->outputs()) return std::move(*made);
  TensorDict full;
  if (core_.outputs.empty()) return full;
  for (const auto& [name, first] : core_.outputs.front()) {
    std::vector<torch::Tensor> parts;
    for (const auto& outputs : core_.outputs) parts.push_back(outputs.at(name));
    torch::Tensor joined = first.dim() == 0 ? torch::stack(parts) : torch::cat(parts);
    if (const auto split = core_.split.find(name); split != core_.split.end() && split->second.placement.sharded()) {
      ProcessGroup& group = *split->second.group;
      Sizes sizes;
      for (int rank = 0; rank < group.size(); ++rank) sizes.push_back(split->second.placement.local_size(rank));
      joined = all_gather_along(group, joined, -1, sizes);
    }
    if (const SequenceParts* shared = core_.settings.parts)
      joined = shared->join(joined, core_.microbatches.front().tokens_per_sample);
    full.set(name, joined);
  }
  return full;
}

}  // namespace gantry

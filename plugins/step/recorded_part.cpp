#include "gantry/plugins/step/recorded_part.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// Returns false for an entry on another device, because the graph would contain its values.
bool describe_into(std::string& key, const TensorDict& entries, torch::Device device) {
  for (const auto& [name, tensor] : entries) {
    key += fmt::format("; {} {}", name, describe(tensor));
    if (!tensor.defined()) continue;
    if (!tensor.is_meta() && tensor.device() != device) return false;
    if (tensor.is_meta()) key += " elsewhere";
    if (tensor.requires_grad()) key += " with gradient";
    if (is_known_to_hide_nothing(name, tensor)) key += " that hides nothing";
  }
  return true;
}

TensorDict copies_of(const TensorDict& tensors) {
  const torch::NoGradGuard no_grad;
  TensorDict copies;
  for (const auto& [name, tensor] : tensors)
    copies.set(name, tensor.defined() ? tensor.clone().requires_grad_(tensor.requires_grad()) : tensor);
  return copies;
}

}  // namespace

// Work that is done once per step, or that is observed, runs without a graph.
StageRecording* RecordedPart::take(const ForwardCall& call) {
  const Batch& batch = core_.microbatches[call.microbatch];
  if (batch.samples == 0 || (checks_outputs_ && call.is_last)) return nullptr;
  std::string key = fmt::format("{}{}", core_.settings.keeps_outputs ? "kept " : "",
                                split_backwards_.contains({call.stage, call.microbatch}) ? "split" : "whole");
  const torch::Device device = graphs_.device();
  if (!describe_into(key, batch.tensors, device) || !describe_into(key, call.input, device)) return nullptr;
  StageRecording* recording = graphs_.take(call.stage, key);
  if (recording) recordings_[{call.stage, call.microbatch}] = recording;
  return recording;
}

StageRecording* RecordedPart::recording_of(const StageCall& call) const {
  const auto found = recordings_.find({call.stage, call.microbatch});
  return found == recordings_.end() ? nullptr : found->second;
}

void RecordedPart::end(const StageCall& call) {
  const auto found = recordings_.find({call.stage, call.microbatch});
  graphs_.give_back(*found->second);
  recordings_.erase(found);
}

StageRecording::Made RecordedPart::compute(const StageCall& call, const TensorDict& batch, const TensorDict& input,
                                           nn::WeightGradientStore& weight_gradients) {
  const StepSettings& settings = core_.settings;
  TensorDict added;
  const ForwardScope scope({.random = settings.random,
                            .weight_gradients = &weight_gradients,
                            .losses = &added,
                            .balance = settings.balance,
                            .mtp_ratios = settings.mtp_ratios.empty() ? nullptr : &settings.mtp_ratios});
  TensorDict result = core_.model.forward(
      call.stage, call.is_first ? batch : input,
      {.batch = batch, .recomputation = settings.recomputation, .recomputed_layers = settings.recomputed_layers});
  if (!added.empty())
    throw ConfigError(
        {"train.device_graphs",
         "CUDA graphs do not support models that add losses, but the model adds '" + added.begin()->first + "'", "",
         "remove train.device_graphs"});
  if (!call.is_last) return {.boundary = std::move(result)};
  StageRecording::Made made{.loss = core_.losses.compute(result, batch, /*logits=*/{})};
  if (!made.loss->count.defined())
    made.loss->sum = made.loss->sum * static_cast<double>(core_.microbatches[call.microbatch].samples);
  if (settings.keeps_outputs)
    for (const auto& [name, tensor] : result) made.outputs.set(name, tensor.detach());
  return made;
}

StageOutput RecordedPart::forward(ForwardCall& call, const NextForward& next) {
  StageRecording* recording = take(call);
  if (!recording) return next();
  const Batch& microbatch = core_.microbatches[call.microbatch];
  const StageRecording::Made& made = recording->forward(
      microbatch.tensors, call.input,
      [&](const TensorDict& batch, const TensorDict& static_input, nn::WeightGradientStore& weight_gradients) {
        return compute(call, batch, static_input, weight_gradients);
      });
  if (!made.loss) return {.boundary = copies_of(made.boundary)};
  core_.losses.record_replayed(call.microbatch, microbatch, *made.loss);
  if (core_.settings.keeps_outputs) core_.outputs[call.microbatch] = copies_of(made.outputs);
  return {};
}

TensorDict RecordedPart::backward(BackwardCall& call, const NextTensors& next) {
  StageRecording* recording = recording_of(call);
  if (!recording) return next();
  TensorDict given = recording->backward(call.gradients, core_.settings.seed_gradient, call.is_split);
  if (!call.is_split) end(call);
  return given;
}

void RecordedPart::weights(WeightsCall& call, const Next& next) {
  StageRecording* recording = recording_of(call);
  if (!recording) return next();
  recording->backward_weight();
  end(call);
}

}  // namespace gantry

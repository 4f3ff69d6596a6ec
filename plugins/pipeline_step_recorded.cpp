// A step's work where it is recorded and replayed.
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/plugins/pipeline_step.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// False where an entry lies on another device, whose numbers would be recorded.
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

// What a step does but once, or tells somebody, has it run plainly.
StageRecording* PipelineStep::take_recording(int stage, int microbatch, const TensorDict& input) {
  const Batch& batch = microbatches_[microbatch];
  if (!options_.graphs || !options_.needs_gradients || options_.observer || batch.samples == 0) return nullptr;
  if (options_.check_outputs && stage == model_.num_stages() - 1) return nullptr;
  std::string key = fmt::format("{}{}", options_.keep_outputs ? "kept " : "",
                                options_.split_backwards.contains({stage, microbatch}) ? "split" : "whole");
  const torch::Device device = options_.graphs->device();
  if (!describe_into(key, batch.tensors, device) || !describe_into(key, input, device)) return nullptr;
  StageRecording* recording = options_.graphs->take(stage, key);
  if (recording) recordings_[{stage, microbatch}] = recording;
  return recording;
}

StageRecording* PipelineStep::recording_of(int stage, int microbatch) const {
  const auto found = recordings_.find({stage, microbatch});
  return found == recordings_.end() ? nullptr : found->second;
}

void PipelineStep::end_recorded(int stage, int microbatch) {
  const auto found = recordings_.find({stage, microbatch});
  options_.graphs->give_back(*found->second);
  recordings_.erase(found);
}

StageRecording::Made PipelineStep::compute_recorded(int stage, int microbatch, const TensorDict& batch,
                                                    const TensorDict& input,
                                                    nn::WeightGradientStore& weight_gradients) {
  TensorDict added;
  const ForwardScope scope({.random = options_.random,
                            .weight_gradients = &weight_gradients,
                            .losses = &added,
                            .balance = options_.balance});
  TensorDict result = model_.forward(
      stage, stage == 0 ? batch : input,
      {.batch = batch, .recomputation = options_.recomputation, .recomputed_layers = options_.recomputed_layers});
  if (!added.empty())
    throw ConfigError(
        {"train.device_graphs",
         "CUDA graphs do not support models that add losses, but the model adds '" + added.begin()->first + "'", "",
         "remove train.device_graphs"});
  if (stage < model_.num_stages() - 1) return {.boundary = std::move(result)};
  StageRecording::Made made{.loss = losses_.compute(result, batch, /*logits=*/{})};
  if (!made.loss->count.defined())
    made.loss->sum = made.loss->sum * static_cast<double>(microbatches_[microbatch].samples);
  if (options_.keep_outputs)
    for (const auto& [name, tensor] : result) made.outputs.set(name, tensor.detach());
  return made;
}

StageOutput PipelineStep::replay_forward(StageRecording& recording, int stage, int microbatch,
                                         const TensorDict& input) {
  const StageRecording::Made& made = recording.forward(
      microbatches_[microbatch].tensors, input,
      [&](const TensorDict& batch, const TensorDict& static_input, nn::WeightGradientStore& weight_gradients) {
        return compute_recorded(stage, microbatch, batch, static_input, weight_gradients);
      });
  if (!made.loss) return {.boundary = copies_of(made.boundary)};
  losses_.record_replayed(microbatch, microbatches_[microbatch], *made.loss);
  if (options_.keep_outputs) outputs_[microbatch] = copies_of(made.outputs);
  return {};
}

TensorDict PipelineStep::replay_backward(int stage, int microbatch, const TensorDict& gradients, bool is_split) {
  TensorDict given = recording_of(stage, microbatch)->backward(gradients, options_.seed_gradient, is_split);
  if (!is_split) end_recorded(stage, microbatch);
  return given;
}

}  // namespace gantry

// The parts of a layer with several streams (AltUpSpec).
#include <cmath>

#include "gantry/models/altup.h"
#include "gantry/models/decoder.h"
#include "gantry/models/laurel.h"
#include "gantry/models/layer_inputs.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

constexpr const char* kPredicted = "predicted";  // all streams before the layer's result, between the two parts

}  // namespace

void DecoderLayerImpl::make_streams(const DecoderSpec& spec) {
  altup_ = std::make_shared<AltUp>(*this, *spec_.altup, spec_.input, spec.names, spec.hidden);
  if (spec_.laurel_rank > 0)
    laurel_ = std::make_shared<Laurel>(*this, spec_.laurel_rank, spec_.input, spec.names, spec.hidden);
  if (spec_.input_width > 0) input_gate_ = std::make_shared<LayerInputGate>(*this, spec_, spec.names, spec.hidden);
}

TensorDict DecoderLayerImpl::computed_stream(const TensorDict& state, const nn::TokenContext& tokens) {
  const AltUpSpec& altup = altup_->spec();
  const torch::Tensor predicted = altup_->predict(state.at("hidden").unflatten(-1, {altup.streams, -1}));
  const torch::Tensor active = predicted.select(2, altup.active), normed = input_(active);
  TensorDict made{{"hidden", {}}, {kPredicted, predicted.flatten(2)}};
  torch::Tensor sum = active + after_attention_(mixed(normed, tokens, {&state, &made}));
  if (laurel_) sum = (sum + (*laurel_)(normed)) / std::sqrt(2.0);
  made.set("hidden", sum);
  return made;
}

TensorDict DecoderLayerImpl::corrected_streams(const TensorDict& state) {
  const std::int64_t streams = altup_->spec().streams;
  const torch::Tensor& sum = state.at("hidden");
  const torch::Tensor computed = sum + after_mlp_(mlp(before_mlp_(sum)));
  torch::Tensor corrected = altup_->correct(state.at(kPredicted).unflatten(-1, {streams, -1}), computed);
  if (input_gate_) {
    const torch::Tensor more = (*input_gate_)(altup_->scaled(corrected), state.at(layer_input(index_)));
    corrected = torch::cat({corrected.narrow(2, 0, 1), corrected.narrow(2, 1, streams - 1) + more.unsqueeze(2)}, 2);
  }
  return {{"hidden", corrected.flatten(2)}, {kPredicted, {}}};
}

LayerParts DecoderLayerImpl::parts_with_streams(const nn::TokenContext& tokens) {
  LayerParts parts;
  parts.emplace_back("attention", [this, tokens](const TensorDict& state) { return computed_stream(state, tokens); });
  parts.emplace_back("mlp", [this](const TensorDict& state) { return corrected_streams(state); });
  return parts;
}

}  // namespace gantry::models

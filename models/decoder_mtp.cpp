#include "gantry/models/decoder_mtp.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/models/decoder.h"
#include "gantry/nn/deferred_logits.h"
#include "gantry/nn/mtp_tokens.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

std::string name_of_depth(int depth) { return fmt::format("mtp_hidden_{}", depth); }

}  // namespace

// Only execute_pipeline knows the numbers of labels. It also trains models in eval().
bool DecoderImpl::predicts_further() const {
  if (spec.mtp_loss == 0) return false;
  if (forward_now().mtp_ratios) return true;
  if (is_training() && torch::GradMode::is_enabled())
    throw UsageError({"multi-token prediction",
                      "a forward in training outside of execute_pipeline would not train its layers",
                      "a step of execute_pipeline",
                      "call eval() on the model for outputs alone, or remove model.config.mtp_loss_scaling_factor"});
  return false;
}

LayerParts DecoderImpl::parts_of_layer(const StageContext& stage, int index, const nn::TokenContext& tokens,
                                       bool sums_routers) {
  if (!spec.layers.at(index).mtp) return layers_->at<DecoderLayerImpl>(index).parts(tokens, sums_routers);
  return predicts_further() ? mtp_parts(stage, index, tokens) : LayerParts();
}

LayerParts DecoderImpl::mtp_parts(const StageContext& stage, int index, const nn::TokenContext& tokens) {
  const int depth = index - main_layers(spec) + 1;
  auto& layer = layers_->at<DecoderLayerImpl>(index);
  const torch::Tensor ids = stage.batch().at(nn::kMtpIds).select(2, depth - 1).contiguous();
  LayerParts parts = layer.parts(tokens);
  const auto enter = [this, &layer, ids, depth](const TensorDict& state) -> TensorDict {
    if (depth > 1) return {{"hidden", layer.mtp_input(tokens_(ids), state.at(name_of_depth(depth - 1)))}};
    const torch::Tensor main = norm_(state.at("hidden"));
    return {{"hidden", layer.mtp_input(tokens_(ids), main)}, {kMainHidden, main}};
  };
  const auto leave = [&layer, depth](const TensorDict& state) -> TensorDict {
    return {{name_of_depth(depth), layer.mtp_output(state.at("hidden"))}};
  };
  using Run = LayerPart::Run;
  parts.emplace(parts.begin(), "mtp_input", Run(enter));
  parts.emplace_back("mtp_output", Run(leave));
  return parts;
}

// The mean of the losses of all depths. A loss that is added is divided by the number of counted labels of the step.
void DecoderImpl::add_mtp_loss(const StageContext& stage, const TensorDict& state) {
  const std::vector<double>& ratios = *forward_now().mtp_ratios;
  const int depths = mtp_depths(spec);
  const torch::Tensor labels = stage.batch().at(nn::kMtpLabels);
  torch::Tensor sum;
  for (int depth = 1; depth <= depths; ++depth) {
    const torch::Tensor& hidden = state.at(name_of_depth(depth));
    torch::Tensor loss = hidden.sum();  // without samples
    if (labels.numel() > 0)
      loss = nn::head_cross_entropy(head_, hidden, labels.select(2, depth - 1),
                                    {.scale = spec.logit_scale, .soft_cap = spec.logit_soft_cap})
                 .sum;
    loss = loss * (spec.mtp_loss * ratios.at(depth - 1) / depths);
    sum = sum.defined() ? sum + loss : loss;
  }
  add_full_loss(nn::kMtpLoss, sum);
}

}  // namespace gantry::models

#include "gantry/models/mixers/lightning_mixer.h"

#include "gantry/models/register_at.h"
#include "gantry/nn/activation.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/depthwise_convolution.h"
#include "gantry/nn/mixers/lightning.h"
#include "gantry/nn/recurrence.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

LightningMixer::LightningMixer(const Lightning& kind, torch::nn::Module& layer, std::int64_t hidden)
    : kind_(kind.sizes) {
  input_ = linear_at(layer, Lightning::kInput, hidden, 3 * kind_.features(), false);
  gate_ = linear_at(layer, Lightning::kGate, hidden, kind_.features(), false);
  norm_ = register_at(layer, Lightning::kNorm, nn::SplitRmsNorm(kind_.features(), kind_.sizes.eps));
  output_ = linear_at(layer, Lightning::kOutput, kind_.features(), hidden, false);
}

torch::Tensor LightningMixer::forward(const torch::Tensor& input, const nn::TokenContext& tokens, int layer) {
  const std::int64_t size = kind_.sizes.head_size;
  const nn::HeadExchange exchange(tokens, nn::held_heads(gate_, size, kind_.sizes.heads));
  const auto projected = nn::together(input, {input_, gate_});
  const torch::Tensor rows = exchange.to_heads({projected[0]}, {{3 * size}}).front();
  const auto parts = nn::activate(rows, kind_.sizes.activation).unflatten(-1, {-1, 3, size}).unbind(-2);
  const torch::Tensor slopes = torch::tensor(kind_.slopes(), torch::kFloat64)
                                   .narrow(0, exchange.heads().first, exchange.heads().count)
                                   .to(torch::TensorOptions(nn::wide_type(input)).device(input.device()));
  // A value of zero writes nothing, so padding does not enter the state.
  const torch::Tensor value = nn::without_padding(parts[2].flatten(-2), exchange.tokens()).unflatten(-1, {-1, size});
  const nn::LightningInputs given{parts[0], parts[1], value, slopes};
  const torch::Tensor made = nn::continue_recurrence(
      tokens.state(layer), rows.size(1),
      [&](const torch::Tensor& before) { return nn::lightning_attention_step(given, before); },
      [&](const torch::Tensor& before) { return nn::lightning_attention(given, before, exchange.tokens().documents); });
  return output_(norm_(exchange.to_tokens(made.flatten(-2), size)) * torch::sigmoid(projected[1]));
}

}  // namespace gantry::models

#include "gantry/models/mixers/kimi_delta_mixer.h"

#include <cmath>

#include "gantry/models/register_at.h"
#include "gantry/nn/mixers/kimi_delta.h"
#include "gantry/nn/recurrence.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

// A_log = ln U(1, 16), and softplus(dt_bias) is log-uniform from 0.001 to 0.1.
void initialise_decays(const torch::Tensor& rate, const torch::Tensor& step) {
  const torch::NoGradGuard no_grad;
  rate.uniform_(1, 16).log_();
  step.uniform_(std::log(0.001), std::log(0.1)).exp_().expm1_().log_();
}

}  // namespace

KimiDeltaMixer::KimiDeltaMixer(const KimiDelta& kind, torch::nn::Module& layer, std::int64_t hidden)
    : kind_(kind.sizes) {
  const KimiDeltaSizes& sizes = kind_.sizes;
  const std::int64_t features = kind_.features(), rank = sizes.head_size;
  nn::Linear* const projections[] = {&query_, &key_, &value_};
  for (std::size_t part = 0; part < 3; ++part) {
    *projections[part] = linear_at(layer, KimiDelta::projection(KimiDelta::kParts[part]), hidden, features, false);
    convolutions_.push_back(register_at(
        layer, KimiDelta::convolution(KimiDelta::kParts[part]),
        nn::DepthwiseConvolution(nn::DepthwiseOptions{.channels = features, .kernel = sizes.kernel, .silu = true})));
  }
  write_ = linear_at(layer, KimiDelta::kWrite, hidden, sizes.heads, false);
  decay_down_ = linear_at(layer, KimiDelta::kDecayDown, hidden, rank, false);
  decay_up_ = linear_at(layer, KimiDelta::kDecayUp, rank, features, false);
  rate_ = register_at(layer, KimiDelta::kRate, nn::HeadParameter("A_log", Shape{1, 1, sizes.heads, 1}));
  step_ = register_at(layer, KimiDelta::kStep, nn::HeadParameter("dt_bias", Shape{features}));
  initialise_decays(rate_->value(), step_->value());
  gate_down_ = linear_at(layer, KimiDelta::kGateDown, hidden, rank, false);
  gate_up_ = linear_at(layer, KimiDelta::kGateUp, rank, features, false);
  norm_ = register_at(layer, KimiDelta::kNorm, nn::RmsNorm(sizes.head_size, sizes.eps));
  output_ = linear_at(layer, KimiDelta::kOutput, features, hidden, false);
}

torch::Tensor KimiDeltaMixer::decays(const torch::Tensor& projected, const nn::HeadExchange& exchange) {
  const torch::ScalarType type = nn::wide_type(projected);
  const torch::Tensor bias = exchange.own(step_->value(), {{kind_.sizes.head_size}}).to(type);
  const torch::Tensor rate = exchange.own(rate_->value().view({-1}), {nn::kOneOfEachHead}).to(type).unsqueeze(-1);
  return -torch::exp(rate) * torch::softplus(projected.to(type) + bias).unflatten(-1, {-1, kind_.sizes.head_size});
}

torch::Tensor KimiDeltaMixer::forward(const torch::Tensor& input, const nn::TokenContext& tokens, int layer) {
  nn::LayerState* state = tokens.state(layer);
  const auto by_head = [&](const torch::Tensor& part) { return part.unflatten(-1, {-1, kind_.sizes.head_size}); };
  const auto projected = nn::together(input, {query_, key_, value_, write_});
  const nn::HeadExchange exchange(tokens, nn::held_heads(write_, 1, kind_.sizes.heads));
  const nn::HeadBlocks features{kind_.sizes.head_size};
  const auto mine =
      exchange.to_heads({projected[0], projected[1], projected[2], decay_up_(decay_down_(input)), projected[3]},
                        {features, features, features, features, nn::kOneOfEachHead});
  const auto parts =
      nn::convolve_together(convolutions_, {mine[0], mine[1], mine[2]}, exchange, {features, features, features}, state)
          .chunk(3, -1);
  const nn::KimiDeltaInputs given{.query = by_head(parts[0]),
                                  .key = by_head(parts[1]),
                                  .value = by_head(parts[2]),
                                  .decay = decays(mine[3], exchange),
                                  .beta = torch::sigmoid(mine[4])};
  const torch::Tensor made = nn::continue_recurrence(
      state, mine[0].size(1), [&](const torch::Tensor& before) { return nn::kimi_delta_step(given, before); },
      [&](const torch::Tensor& before) { return nn::kimi_delta(given, before, exchange.tokens().documents); });
  const torch::Tensor gate = by_head(gate_up_(gate_down_(input)));
  const torch::Tensor here = by_head(exchange.to_tokens(made.flatten(-2), kind_.sizes.head_size));
  return output_((norm_(here) * torch::sigmoid(gate)).flatten(-2));
}

}  // namespace gantry::models

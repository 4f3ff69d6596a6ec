#include "gantry/models/mixers/rg_lru_mixer.h"

#include "gantry/models/register_at.h"
#include "gantry/nn/activation.h"
#include "gantry/nn/mixers/rg_lru.h"
#include "gantry/nn/recurrence.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

// Decays between 0.9 and 0.999 for an open gate: softplus(rate) = -ln(decay), with evenly distributed squares.
void initialise_rate(const torch::Tensor& rate) {
  const torch::NoGradGuard no_grad;
  rate.uniform_(0.9 * 0.9 + 1e-8, 0.999 * 0.999 + 1e-8).log_().mul_(-0.5).expm1_().log_();
}

// The tokens that begin a text: the first kept one of each sample, or of each document. Undefined if the tokens follow
// earlier ones.
torch::Tensor text_starts(const nn::TokenContext& tokens, std::int64_t count, const torch::Tensor& like,
                          const nn::LayerState* state) {
  if (state && state->get(nn::kRecurrence).defined()) return {};
  if (tokens.documents.defined()) return nn::positions_in(tokens.documents) == 0;
  if (tokens.keep.defined()) return tokens.keep & (tokens.keep.cumsum(1) == 1);
  return torch::arange(count, torch::TensorOptions(torch::kInt64).device(like.device())).unsqueeze(0) == 0;
}

}  // namespace

RgLruMixer::RgLruMixer(const RgLru& kind, torch::nn::Module& layer, std::int64_t hidden) : sizes_(kind.sizes) {
  const std::int64_t channels = sizes_.channels();
  gate_ = linear_at(layer, RgLru::kGate, hidden, channels, true);
  input_ = linear_at(layer, RgLru::kInput, hidden, channels, true);
  convolution_ = register_at(
      layer, RgLru::kConvolution,
      nn::DepthwiseConvolution(nn::DepthwiseOptions{.channels = channels, .kernel = sizes_.kernel, .bias = true}));
  input_gate_ = register_at(layer, RgLru::kInputGate, nn::BlockLinear(sizes_.heads, sizes_.head_size));
  recurrent_gate_ = register_at(layer, RgLru::kRecurrentGate, nn::BlockLinear(sizes_.heads, sizes_.head_size));
  rate_ = register_at(layer, RgLru::kRate, nn::HeadParameter("recurrent_param", Shape{channels}));
  initialise_rate(rate_->value());
  output_ = linear_at(layer, RgLru::kOutput, channels, hidden, true);
}

torch::Tensor RgLruMixer::forward(const torch::Tensor& input, const nn::TokenContext& tokens, int layer) {
  nn::LayerState* state = tokens.state(layer);
  const auto parts = nn::together(input, {gate_, input_});
  const nn::HeadExchange exchange(tokens, nn::held_heads(gate_, sizes_.head_size, sizes_.heads));
  const nn::HeadBlockList channels = {{sizes_.head_size}};
  const torch::Tensor x = convolution_(exchange.to_heads({parts[1]}, channels).front(), exchange, channels, state);
  const nn::RgLruInputs given{.x = nn::without_padding(x, exchange.tokens()),
                              .input_gate = input_gate_(x, exchange),
                              .recurrent_gate = recurrent_gate_(x, exchange),
                              .rate = exchange.own(rate_->value(), channels),
                              .starts = text_starts(exchange.tokens(), x.size(1), x, state)};
  const auto scan = [&](const torch::Tensor& before) { return nn::rg_lru(given, before); };
  const torch::Tensor made = nn::continue_recurrence(state, x.size(1), scan, scan);
  return output_(exchange.to_tokens(made, sizes_.head_size) * nn::activate(parts[0], sizes_.activation));
}

}  // namespace gantry::models

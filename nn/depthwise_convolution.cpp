#include "gantry/nn/depthwise_convolution.h"

#include <cmath>

#include "gantry/nn/mixers/causal_convolution.h"
#include "gantry/nn/overlap.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

constexpr const char* kPastInputs = "past_inputs";  // in LayerState: [samples, channels, kernel - 1]

}  // namespace

torch::Tensor without_padding(const torch::Tensor& features, const TokenContext& tokens) {
  if (!tokens.keep.defined()) return features;
  const std::int64_t count = features.size(1);
  return features * tokens.keep.narrow(1, tokens.keep.size(1) - count, count).unsqueeze(-1);
}

DepthwiseConvolutionImpl::DepthwiseConvolutionImpl(const DepthwiseOptions& options)
    : options_(options), shapes_{{"weight", {options.channels, 1, options.kernel}}} {
  weight = register_parameter("weight", torch::empty(shapes_["weight"]));
  torch::nn::init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (!options.bias) return;
  shapes_["bias"] = {options.channels};
  bias = register_parameter("bias", torch::empty(shapes_["bias"]));
  torch::nn::init::zeros_(bias);
}

torch::Tensor DepthwiseConvolutionImpl::forward(const torch::Tensor& input, const HeadExchange& exchange,
                                                const HeadBlockList& blocks, LayerState* state) {
  const TokenContext& tokens = exchange.tokens();
  const auto made =
      causal_convolution(without_padding(input, tokens),
                         {exchange.own(kernels(), blocks), exchange.own(used(bias), blocks), options_.silu},
                         state ? state->get(kPastInputs) : torch::Tensor(), tokens.documents);
  if (state) state->set(kPastInputs, made.state);
  return made.out;
}

torch::Tensor convolve_together(const std::vector<DepthwiseConvolution>& convolutions,
                                const std::vector<torch::Tensor>& inputs, const HeadExchange& exchange,
                                const HeadBlockList& blocks, LayerState* state) {
  const TokenContext& tokens = exchange.tokens();
  std::vector<torch::Tensor> kernels;
  for (const DepthwiseConvolution& convolution : convolutions) kernels.push_back(convolution->kernels());
  const auto made = causal_convolution(without_padding(torch::cat(inputs, -1), tokens),
                                       {.weight = exchange.own(torch::cat(kernels), blocks), .bias = {}, .silu = true},
                                       state ? state->get(kPastInputs) : torch::Tensor(), tokens.documents);
  if (state) state->set(kPastInputs, made.state);
  return made.out;
}

torch::Tensor DepthwiseConvolutionImpl::used(const torch::Tensor& parameter) const {
  return summed_over_ && parameter.defined() ? with_summed_overlaps(parameter, placement_, *summed_over_) : parameter;
}

Placements DepthwiseConvolutionImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  const auto* column = std::get_if<Column>(&style);
  if (!column) refuse_style("a DepthwiseConvolution", style, "Column{}");
  const Placements placements = split_parameters(shapes_, style, axes);
  placement_ = shard_of(placements, "weight");
  if (column->gradient_sum == GradientSum::kInBackward && placement_.sharded()) summed_over_ = &axes.group();
  shard_parameters(*this, placements, axes);
  return placements;
}

}  // namespace gantry::nn

// The causal convolution of recurrent mixers as a module: each channel has a kernel of its own over the last tokens.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "gantry/nn/head_exchange.h"
#include "gantry/nn/key_value_cache.h"
#include "gantry/nn/shard_style.h"

namespace gantry::nn {

struct DepthwiseOptions {
  std::int64_t channels = 1;
  std::int64_t kernel = 4;  // tokens that a token sees, with itself
  bool bias = false;
  bool silu = false;  // applied to the output
};

// Returns `features` [samples, tokens, channels] with zeros at the tokens that do not count (TokenContext::keep).
torch::Tensor without_padding(const torch::Tensor& features, const TokenContext& tokens);

// forward: [samples, tokens, channels] -> the same shape, by causal_convolution(). Inputs of other documents and those
// of padding are zero. After shard(Column): the local channels, without communication in the forward. Parameters weight
// [channels, 1, kernel] and bias [channels].
class DepthwiseConvolutionImpl : public torch::nn::Module, public Shardable {
 public:
  explicit DepthwiseConvolutionImpl(const DepthwiseOptions& options);

  // `input`: the channels and tokens of exchange.to_heads() for `blocks`, which are all local channels. `state`: has
  // the inputs of earlier calls that the kernel still sees, and receives those of this call; null: none.
  torch::Tensor forward(const torch::Tensor& input, const HeadExchange& exchange, const HeadBlockList& blocks,
                        LayerState* state);
  // The local weight [channels, kernel], with its gradient summed if ranks share channels.
  torch::Tensor kernels() const { return used(weight).select(1, 0); }
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;

  torch::Tensor weight, bias;  // bias undefined: none

 private:
  // The parameter; gradients of channels that ranks share are reduced over tp in the backward if that is requested.
  torch::Tensor used(const torch::Tensor& parameter) const;

  const DepthwiseOptions options_;
  std::map<std::string, Shape> shapes_;  // global shapes of the parameters
  ProcessGroup* summed_over_ = nullptr;  // null: gradients are not reduced in the backward
  ShardSpec placement_;
};
TORCH_MODULE(DepthwiseConvolution);

// Convolutions without bias of several inputs, computed as one over all channels, with SiLU and one state. `blocks`:
// those of each input, see DepthwiseConvolutionImpl::forward(). Returns the outputs one after the other in the last
// dimension.
torch::Tensor convolve_together(const std::vector<DepthwiseConvolution>& convolutions,
                                const std::vector<torch::Tensor>& inputs, const HeadExchange& exchange,
                                const HeadBlockList& blocks, LayerState* state);

}  // namespace gantry::nn

// Causal depthwise convolution over tokens: the short convolution before the recurrence of Mamba (Gu, Dao, arXiv
// 2312.00752), Mamba-2, gated delta networks and LFM2.
#pragma once

#include "gantry/tensors/tensor.h"

namespace gantry::nn {

struct CausalConvolution {
  torch::Tensor weight;  // [channels, taps]; the last tap multiplies the token itself
  torch::Tensor bias;    // [channels] or undefined
  bool silu = false;     // applied to the result
};

struct ConvolutionResult {
  torch::Tensor out;  // [samples, tokens, channels], of the input's dtype
  torch::Tensor
      state;  // [samples, channels, taps - 1]: the last inputs, newest last; zero for those of other documents
};

// out[t] = act(bias + sum_j weight[j] input[t - taps + 1 + j]) for each channel of `input` [samples, tokens, channels].
// `state`: the inputs before the first token, in the form of ConvolutionResult::state; undefined: zeros. `documents`:
// int [samples, tokens]; inputs of an earlier document count as zero, and `state` belongs to the first document of a
// row; undefined: one document. Any number of tokens from 1, so the step of generation is a call with one token.
// bfloat16 and float16 are summed in float32, see kernels::causal_convolution(). All inputs get gradients; the backward
// keeps the input and computes the sums again.
ConvolutionResult causal_convolution(const torch::Tensor& input, const CausalConvolution& by,
                                     const torch::Tensor& state = {}, const torch::Tensor& documents = {});

}  // namespace gantry::nn

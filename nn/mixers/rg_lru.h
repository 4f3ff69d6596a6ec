// The real-gated linear recurrent unit (De et al.: Griffin: Mixing Gated Linear Recurrences with Local Attention for
// Efficient Language Models, arXiv 2402.19427).
#pragma once

#include "gantry/nn/mixers/chunks.h"

namespace gantry::nn {

struct RgLruInputs {
  torch::Tensor x;               // [samples, tokens, channels], after the convolution
  torch::Tensor input_gate;      // [samples, tokens, channels], before the sigmoid
  torch::Tensor recurrent_gate;  // the same
  torch::Tensor rate;            // [channels]: a = exp(-8 softplus(rate)) is the smallest decay
  // Bool [samples or 1, tokens]: tokens that begin a text or a document, whose state is zero and whose input has the
  // factor 1; undefined: none.
  torch::Tensor starts;
};

// With log a_t = -8 sigmoid(recurrent_gate_t) softplus(rate): h_t = a_t h_{t-1} + sqrt(1 - a_t^2) sigmoid(input_gate_t)
// x_t. The result's out is all h_t, [samples, tokens, channels], and its state the last one, [samples, channels].
// `state`: undefined: zeros. Computes in float32 or wider, see kernels::rg_lru(). The slope of the square root is at
// most 1000. Any number of tokens from 1, so the step of generation is a call with one token.
RecurrenceResult rg_lru(const RgLruInputs& inputs, const torch::Tensor& state = {});

}  // namespace gantry::nn

// The real-gated linear recurrent unit in one pass forward and one backward. Operators of LibTorch's dispatcher
// (gantry::rg_lru_, gantry::rg_lru_backward_), with kernels for the CPU and for CUDA.
#pragma once

#include "gantry/tensors/tensor.h"

namespace gantry::kernels {

// Contiguous tensors, see LruInputs. scale and initial are float64 for x in float64, else float32.
struct RgLruTensors {
  torch::Tensor x, input_gate, recurrent_gate;  // [samples, tokens, channels], of one floating-point type
  torch::Tensor scale;                          // [channels]
  torch::Tensor initial;                        // [samples, channels]
  torch::Tensor starts;                         // bool [samples, tokens]; undefined: none
};

// Returns the states after each token, [samples, tokens, channels], of the type of scale. No graph is made.
torch::Tensor rg_lru(const RgLruTensors& of);

// Gradients of the type of scale, in the shapes of the tensors.
struct RgLruGradients {
  torch::Tensor x, input_gate, recurrent_gate, scale, initial;
};
// `of_states`: the gradient of the states.
RgLruGradients rg_lru_backward(const RgLruTensors& of, const torch::Tensor& states, const torch::Tensor& of_states);

}  // namespace gantry::kernels

// The selective scan of Mamba in one pass forward and one backward. Operators of LibTorch's dispatcher
// (gantry::selective_scan_, gantry::selective_scan_backward_), with kernels for the CPU and for CUDA.
#pragma once

#include "gantry/tensors/tensor.h"

namespace gantry::kernels {

// Contiguous tensors of one type, float32 or float64, see ScanInputs.
struct SelectiveScanTensors {
  torch::Tensor x, dt;   // [samples, tokens, channels]
  torch::Tensor a;       // [states, channels]
  torch::Tensor b, c;    // [samples, tokens, states]
  torch::Tensor d;       // [channels]; undefined: no skip connection
  torch::Tensor starts;  // bool [samples, tokens]: the state before the token is zero; undefined: none
};

struct SelectiveScanResults {
  torch::Tensor out;      // [samples, tokens, channels]
  torch::Tensor state;    // [samples, states, channels], after the last token
  torch::Tensor borders;  // the states that the backward needs
};
// `state`: [samples, states, channels], before the first token. No graph is made.
SelectiveScanResults selective_scan(const SelectiveScanTensors& of, const torch::Tensor& state);

// Gradients in the shapes of the tensors; d is undefined if the tensors have none.
struct SelectiveScanGradients {
  torch::Tensor x, dt, a, b, c, d, state;
};
// `of_out` and `of_state`: the gradients of the results. Reductions have a fixed order, so two calls are bitwise
// identical.
SelectiveScanGradients selective_scan_backward(const SelectiveScanTensors& of, const torch::Tensor& borders,
                                               const torch::Tensor& of_out, const torch::Tensor& of_state);

}  // namespace gantry::kernels

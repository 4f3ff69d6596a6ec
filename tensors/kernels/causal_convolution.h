// The causal depthwise convolution in one pass forward and one backward. Operators of LibTorch's dispatcher
// (gantry::causal_convolution_, gantry::causal_convolution_backward_), with kernels for the CPU and for CUDA.
#pragma once

#include "gantry/tensors/tensor.h"

namespace gantry::kernels {

// Contiguous tensors, see ConvolutionInputs.
struct CausalConvolutionTensors {
  torch::Tensor x;       // [samples, tokens, channels], of any floating-point type
  torch::Tensor past;    // [samples, taps - 1, channels], of the type of x; undefined: zeros
  torch::Tensor weight;  // [taps, channels], float64 for x in float64, else float32
  torch::Tensor bias;    // [channels], of the type of weight; undefined: zeros
  torch::Tensor reach;   // int32 [samples, tokens]; undefined: no limit
  bool silu = false;
};

// Returns [samples, tokens, channels] of the type of x. No graph is made.
torch::Tensor causal_convolution(const CausalConvolutionTensors& of);

// Gradients of the type of weight, in the shapes of the tensors. past and bias are undefined if the tensors are.
struct CausalConvolutionGradients {
  torch::Tensor x, past, weight, bias;
};
// `of_out`: the gradient of the result, of its type. Reductions have a fixed order, so two calls are bitwise identical.
CausalConvolutionGradients causal_convolution_backward(const CausalConvolutionTensors& of, const torch::Tensor& of_out);

}  // namespace gantry::kernels

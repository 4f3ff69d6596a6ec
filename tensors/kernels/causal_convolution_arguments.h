// The arguments of the operators of a causal convolution as plain pointers, for kernels of the host and of devices.
#pragma once

#include <optional>

#include "gantry/tensors/kernels/causal_convolution_element.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::kernels {

template <class T, class A>
ConvolutionInputs<T, A> convolution_inputs(const at::Tensor& x, const std::optional<at::Tensor>& past,
                                           const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                                           const std::optional<at::Tensor>& reach, bool silu, std::int64_t piece) {
  return {.samples = x.size(0),
          .tokens = x.size(1),
          .channels = x.size(2),
          .taps = weight.size(0),
          .x = x.const_data_ptr<T>(),
          .past = past ? past->const_data_ptr<T>() : nullptr,
          .weight = weight.const_data_ptr<A>(),
          .bias = bias ? bias->const_data_ptr<A>() : nullptr,
          .reach = reach ? reach->const_data_ptr<int>() : nullptr,
          .silu = silu,
          .piece = piece};
}

// `to`: the gradients of x, weight, bias and past, see ConvolutionGradients.
template <class T, class A>
ConvolutionGradients<T, A> convolution_gradients(at::TensorList to, const at::Tensor& of_out) {
  return {.out = of_out.const_data_ptr<T>(),
          .x = to[0].data_ptr<A>(),
          .weight = to[1].data_ptr<A>(),
          .bias = to[2].data_ptr<A>(),
          .past = to[3].data_ptr<A>()};
}

}  // namespace gantry::kernels

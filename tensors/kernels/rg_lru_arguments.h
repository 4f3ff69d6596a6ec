// The arguments of the operators of a real-gated linear recurrent unit as plain pointers, for kernels of the host and
// of devices.
#pragma once

#include <optional>

#include "gantry/tensors/kernels/rg_lru_element.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::kernels {

template <class T, class A>
LruInputs<T, A> lru_inputs(const at::Tensor& x, const at::Tensor& input_gate, const at::Tensor& recurrent_gate,
                           const at::Tensor& scale, const at::Tensor& initial,
                           const std::optional<at::Tensor>& starts) {
  return {.samples = x.size(0),
          .tokens = x.size(1),
          .channels = x.size(2),
          .x = x.const_data_ptr<T>(),
          .input_gate = input_gate.const_data_ptr<T>(),
          .recurrent_gate = recurrent_gate.const_data_ptr<T>(),
          .scale = scale.const_data_ptr<A>(),
          .initial = initial.const_data_ptr<A>(),
          .starts = starts ? starts->const_data_ptr<bool>() : nullptr};
}

// `to`: the gradients of x, the gates, scale and initial, see LruGradients.
template <class A>
LruGradients<A> lru_gradients(at::TensorList to, const at::Tensor& of_states, const at::Tensor& states) {
  return {.out = of_states.const_data_ptr<A>(),
          .states = states.const_data_ptr<A>(),
          .x = to[0].data_ptr<A>(),
          .input_gate = to[1].data_ptr<A>(),
          .recurrent_gate = to[2].data_ptr<A>(),
          .scale = to[3].data_ptr<A>(),
          .initial = to[4].data_ptr<A>()};
}

}  // namespace gantry::kernels

// The arguments of the operators of a selective scan as plain pointers, for kernels of the host and of devices.
#pragma once

#include <optional>

#include "gantry/tensors/kernels/selective_scan_element.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::kernels {

using OptionalTensor = std::optional<at::Tensor>;

template <class A>
ScanInputs<A> scan_inputs(const at::Tensor& x, const at::Tensor& dt, const at::Tensor& a, const at::Tensor& b,
                          const at::Tensor& c, const OptionalTensor& d, const OptionalTensor& starts) {
  return {.samples = x.size(0),
          .tokens = x.size(1),
          .channels = x.size(2),
          .states = a.size(0),
          .x = x.const_data_ptr<A>(),
          .dt = dt.const_data_ptr<A>(),
          .a = a.const_data_ptr<A>(),
          .b = b.const_data_ptr<A>(),
          .c = c.const_data_ptr<A>(),
          .d = d ? d->const_data_ptr<A>() : nullptr,
          .starts = starts ? starts->const_data_ptr<bool>() : nullptr};
}

// `to`: the gradients of x, dt, a, b, c, of the state and, with d, of d, see ScanGradients.
template <class A>
ScanGradients<A> scan_gradients(at::TensorList to, const at::Tensor& of_out, const at::Tensor& borders) {
  constexpr std::size_t kWithoutSkip = 6;
  return {.out = of_out.const_data_ptr<A>(),
          .borders = borders.const_data_ptr<A>(),
          .x = to[0].data_ptr<A>(),
          .dt = to[1].data_ptr<A>(),
          .a = to[2].data_ptr<A>(),
          .b = to[3].data_ptr<A>(),
          .c = to[4].data_ptr<A>(),
          .d = to.size() > kWithoutSkip ? to[kWithoutSkip].data_ptr<A>() : nullptr,
          .state = to[5].data_ptr<A>()};
}

template <class A>
ScanResults<A> scan_results(const at::Tensor& out, const at::Tensor& state, const at::Tensor& borders) {
  return {out.data_ptr<A>(), state.data_ptr<A>(), borders.data_ptr<A>()};
}

}  // namespace gantry::kernels

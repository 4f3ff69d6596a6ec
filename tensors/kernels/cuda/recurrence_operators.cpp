// The operators of recurrences for tensors of CUDA devices, built if CUDA's compiler is found.
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include "gantry/core/error.h"
#include "gantry/tensors/kernels/causal_convolution_arguments.h"
#include "gantry/tensors/kernels/channel_scores_arguments.h"
#include "gantry/tensors/kernels/cuda/recurrence_launches.h"
#include "gantry/tensors/kernels/rg_lru_arguments.h"
#include "gantry/tensors/kernels/selective_scan_arguments.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::kernels {
namespace {

// Calls launch(stream) on the current stream of the tensor's device.
template <class Launch>
void launch_recurrence(const at::Tensor& on, const char* what, const Launch& launch) {
  const c10::DeviceGuard on_device(on.device());
  const c10::impl::VirtualGuardImpl guard(on.device().type());
  const char* error = launch(guard.getStreamNativeHandle(guard.getStream(on.device())));
  if (error)
    throw ResourceError({what, std::string("CUDA reports: ") + error, "a kernel for this device",
                         "see docs/gpu.md for the devices that Gantry is built for"});
}

void scan_on_cuda(at::Tensor& out, at::Tensor& state, at::Tensor& borders, const at::Tensor& x, const at::Tensor& dt,
                  const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const OptionalTensor& d,
                  const OptionalTensor& starts) {
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gantry::selective_scan_", [&] {
    launch_recurrence(x, "selective scan", [&](void* stream) {
      return launch_selective_scan(scan_inputs<scalar_t>(x, dt, a, b, c, d, starts),
                                   scan_results<scalar_t>(out, state, borders), stream);
    });
  });
}

void scan_backward_on_cuda(at::TensorList to, const at::Tensor& of_out, const at::Tensor& borders, const at::Tensor& x,
                           const at::Tensor& dt, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                           const OptionalTensor& d, const OptionalTensor& starts) {
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gantry::selective_scan_backward_", [&] {
    launch_recurrence(x, "selective scan", [&](void* stream) {
      return launch_selective_scan_backward(scan_inputs<scalar_t>(x, dt, a, b, c, d, starts),
                                            scan_gradients<scalar_t>(to, of_out, borders), stream);
    });
  });
}

void convolve_on_cuda(at::Tensor& out, const at::Tensor& x, const OptionalTensor& past, const at::Tensor& weight,
                      const OptionalTensor& bias, const OptionalTensor& reach, bool silu, std::int64_t piece) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "gantry::causal_convolution_", [&] {
    using Sum = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
    launch_recurrence(x, "causal convolution", [&](void* stream) {
      return launch_causal_convolution(convolution_inputs<scalar_t, Sum>(x, past, weight, bias, reach, silu, piece),
                                       out.data_ptr<scalar_t>(), stream);
    });
  });
}

void convolve_backward_on_cuda(at::TensorList to, const at::Tensor& of_out, const at::Tensor& x,
                               const OptionalTensor& past, const at::Tensor& weight, const OptionalTensor& bias,
                               const OptionalTensor& reach, bool silu, std::int64_t piece) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "gantry::causal_convolution_backward_",
                                  [&] {
                                    using Sum = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
                                    launch_recurrence(x, "causal convolution", [&](void* stream) {
                                      return launch_causal_convolution_backward(
                                          convolution_inputs<scalar_t, Sum>(x, past, weight, bias, reach, silu, piece),
                                          convolution_gradients<scalar_t, Sum>(to, of_out), stream);
                                    });
                                  });
}

void lru_on_cuda(at::Tensor& states, const at::Tensor& x, const at::Tensor& input_gate,
                 const at::Tensor& recurrent_gate, const at::Tensor& scale, const at::Tensor& initial,
                 const OptionalTensor& starts) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "gantry::rg_lru_", [&] {
    using Wide = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
    launch_recurrence(x, "gated linear recurrent unit", [&](void* stream) {
      return launch_rg_lru(lru_inputs<scalar_t, Wide>(x, input_gate, recurrent_gate, scale, initial, starts),
                           states.data_ptr<Wide>(), stream);
    });
  });
}

void lru_backward_on_cuda(at::TensorList to, const at::Tensor& of_states, const at::Tensor& states, const at::Tensor& x,
                          const at::Tensor& input_gate, const at::Tensor& recurrent_gate, const at::Tensor& scale,
                          const at::Tensor& initial, const OptionalTensor& starts) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "gantry::rg_lru_backward_", [&] {
    using Wide = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
    launch_recurrence(x, "gated linear recurrent unit", [&](void* stream) {
      return launch_rg_lru_backward(lru_inputs<scalar_t, Wide>(x, input_gate, recurrent_gate, scale, initial, starts),
                                    lru_gradients<Wide>(to, of_states, states), stream);
    });
  });
}

void scores_on_cuda(at::Tensor& of_query, at::Tensor& of_key, const at::Tensor& query, const at::Tensor& key,
                    const at::Tensor& sums) {
  AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "gantry::channel_scores_", [&] {
    launch_recurrence(query, "scores by channels", [&](void* stream) {
      const ChannelScores<scalar_t> to{of_query.data_ptr<scalar_t>(), of_key.data_ptr<scalar_t>()};
      return launch_channel_scores(scored_tokens<scalar_t>(query, key, sums), to, stream);
    });
  });
}

void scores_backward_on_cuda(at::TensorList to, const at::Tensor& of_query, const at::Tensor& of_key,
                             const at::Tensor& query, const at::Tensor& key, const at::Tensor& sums) {
  AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "gantry::channel_scores_backward_", [&] {
    launch_recurrence(query, "scores by channels", [&](void* stream) {
      return launch_channel_scores_backward(scored_tokens<scalar_t>(query, key, sums),
                                            scored_gradients<scalar_t>(to, of_query, of_key), stream);
    });
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(gantry, CUDA, library) {
  library.impl("selective_scan_", &scan_on_cuda);
  library.impl("selective_scan_backward_", &scan_backward_on_cuda);
  library.impl("causal_convolution_", &convolve_on_cuda);
  library.impl("causal_convolution_backward_", &convolve_backward_on_cuda);
  library.impl("channel_scores_", &scores_on_cuda);
  library.impl("channel_scores_backward_", &scores_backward_on_cuda);
  library.impl("rg_lru_", &lru_on_cuda);
  library.impl("rg_lru_backward_", &lru_backward_on_cuda);
}

}  // namespace gantry::kernels

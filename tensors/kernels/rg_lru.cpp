#include "gantry/tensors/kernels/rg_lru.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <torch/library.h>

#include "gantry/core/error.h"
#include "gantry/tensors/kernels/rg_lru_arguments.h"
#include "gantry/tensors/kernels/rg_lru_loops.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::kernels {
namespace {

using OptionalStarts = std::optional<at::Tensor>;

// Calls `loop(sample, channels)` for all channels of all samples, on all threads.
template <class T, class A, class Loop>
void for_each_lru_channels(const LruInputs<T, A>& of, const Loop& loop) {
  const auto parts = [](std::int64_t of_all, std::int64_t most) { return (of_all + most - 1) / most; };
  constexpr std::int64_t kLanes = 32;  // a part has a multiple of them
  const std::int64_t of_thread = parts(of.samples * of.channels, at::get_num_threads());
  const std::int64_t width = std::clamp(parts(of_thread, kLanes) * kLanes, 4 * kLanes, kMostLruChannels);
  const std::int64_t groups = parts(of.channels, width);
  at::parallel_for(0, of.samples * groups, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i % groups * width;
      loop(i / groups, LruChannels{first, std::min(width, of.channels - first)});
    }
  });
}

void lru_on_cpu(at::Tensor& states, const at::Tensor& x, const at::Tensor& input_gate, const at::Tensor& recurrent_gate,
                const at::Tensor& scale, const at::Tensor& initial, const OptionalStarts& starts) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "gantry::rg_lru_", [&] {
    using Wide = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
    const auto of = lru_inputs<scalar_t, Wide>(x, input_gate, recurrent_gate, scale, initial, starts);
    auto* const to = states.data_ptr<Wide>();
    for_each_lru_channels(of,
                          [&](std::int64_t sample, LruChannels channels) { lru_channels(of, to, sample, channels); });
  });
}

void lru_backward_on_cpu(at::TensorList to, const at::Tensor& of_states, const at::Tensor& states, const at::Tensor& x,
                         const at::Tensor& input_gate, const at::Tensor& recurrent_gate, const at::Tensor& scale,
                         const at::Tensor& initial, const OptionalStarts& starts) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "gantry::rg_lru_backward_", [&] {
    using Wide = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
    const auto of = lru_inputs<scalar_t, Wide>(x, input_gate, recurrent_gate, scale, initial, starts);
    const auto gradients = lru_gradients<Wide>(to, of_states, states);
    for_each_lru_channels(
        of, [&](std::int64_t sample, LruChannels channels) { lru_channels_backward(of, gradients, sample, channels); });
  });
}

// The meta device: there is nothing to compute.
void no_lru(at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
            const OptionalStarts&) {}
void no_lru_backward(at::TensorList, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                     const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptionalStarts&) {}

OptionalStarts if_any(const torch::Tensor& starts) { return starts.defined() ? OptionalStarts(starts) : std::nullopt; }

void check_lru(const RgLruTensors& of) {
  for (const torch::Tensor& tensor : {of.x, of.input_gate, of.recurrent_gate})
    if (tensor.scalar_type() != of.x.scalar_type() || tensor.sizes() != of.x.sizes() || !tensor.is_contiguous())
      throw InternalError({"gated linear recurrent unit",
                           "an input is " + describe(tensor) + ", and x is " + describe(of.x),
                           "contiguous inputs of one shape and type", ""});
}

}  // namespace

torch::Tensor rg_lru(const RgLruTensors& of) {
  static const auto kOperator =
      c10::Dispatcher::singleton().findSchemaOrThrow("gantry::rg_lru_", "").typed<decltype(lru_on_cpu)>();
  check_lru(of);
  const torch::NoGradGuard no_grad;
  torch::Tensor states = torch::empty(of.x.sizes(), of.scale.options());
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  if (states.numel() > 0)
    kOperator.call(states, of.x, of.input_gate, of.recurrent_gate, of.scale, of.initial, if_any(of.starts));
  return states;
}

RgLruGradients rg_lru_backward(const RgLruTensors& of, const torch::Tensor& states, const torch::Tensor& of_states) {
  static const auto kOperator = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("gantry::rg_lru_backward_", "")
                                    .typed<decltype(lru_backward_on_cpu)>();
  check_lru(of);
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> to;
  for (int i = 0; i < 3; ++i) to.push_back(torch::empty_like(states));
  for (int i = 0; i < 2; ++i) to.push_back(torch::empty_like(of.initial));
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  if (states.numel() > 0)
    kOperator.call(to, of_states, states, of.x, of.input_gate, of.recurrent_gate, of.scale, of.initial,
                   if_any(of.starts));
  return {to[0], to[1], to[2], to[3].sum(0), to[4]};
}

TORCH_LIBRARY_FRAGMENT(gantry, library) {
  library.def(
      "rg_lru_(Tensor(a!) states, Tensor x, Tensor input_gate, Tensor recurrent_gate, Tensor scale, Tensor initial, "
      "Tensor? starts) -> ()");
  library.def(
      "rg_lru_backward_(Tensor(a!)[] to, Tensor of_states, Tensor states, Tensor x, Tensor input_gate, "
      "Tensor recurrent_gate, Tensor scale, Tensor initial, Tensor? starts) -> ()");
}

TORCH_LIBRARY_IMPL(gantry, CPU, library) {
  library.impl("rg_lru_", &lru_on_cpu);
  library.impl("rg_lru_backward_", &lru_backward_on_cpu);
}

TORCH_LIBRARY_IMPL(gantry, Meta, library) {
  library.impl("rg_lru_", &no_lru);
  library.impl("rg_lru_backward_", &no_lru_backward);
}

}  // namespace gantry::kernels

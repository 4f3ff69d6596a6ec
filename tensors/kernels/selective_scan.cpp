#include "gantry/tensors/kernels/selective_scan.h"

#include <ATen/Parallel.h>
#include <torch/library.h>

#include "gantry/core/error.h"
#include "gantry/tensors/kernels/selective_scan_arguments.h"
#include "gantry/tensors/kernels/selective_scan_loops.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::kernels {
namespace {

// Calls `loop(sample, group)` for all groups of channels, on all threads.
template <class A, class Loop>
void for_each_group(const ScanInputs<A>& of, const Loop& loop) {
  const std::int64_t groups = (of.channels + kScanLanes - 1) / kScanLanes;
  at::parallel_for(0, of.samples * groups, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) loop(i / groups, i % groups);
  });
}

void scan_on_cpu(at::Tensor& out, at::Tensor& state, at::Tensor& borders, const at::Tensor& x, const at::Tensor& dt,
                 const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const OptionalTensor& d,
                 const OptionalTensor& starts) {
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gantry::selective_scan_", [&] {
    const auto of = scan_inputs<scalar_t>(x, dt, a, b, c, d, starts);
    const auto to = scan_results<scalar_t>(out, state, borders);
    for_each_group(of, [&](std::int64_t sample, std::int64_t group) { scan_group(of, to, sample, group); });
  });
}

void scan_backward_on_cpu(at::TensorList to, const at::Tensor& of_out, const at::Tensor& borders, const at::Tensor& x,
                          const at::Tensor& dt, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                          const OptionalTensor& d, const OptionalTensor& starts) {
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gantry::selective_scan_backward_", [&] {
    const auto of = scan_inputs<scalar_t>(x, dt, a, b, c, d, starts);
    const auto gradients = scan_gradients<scalar_t>(to, of_out, borders);
    for_each_group(of,
                   [&](std::int64_t sample, std::int64_t group) { scan_group_backward(of, gradients, sample, group); });
  });
}

// The meta device: there is nothing to compute.
void no_scan(at::Tensor&, at::Tensor&, at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
             const at::Tensor&, const at::Tensor&, const OptionalTensor&, const OptionalTensor&) {}
void no_scan_backward(at::TensorList, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                      const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptionalTensor&,
                      const OptionalTensor&) {}

OptionalTensor if_given(const torch::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

void check_scan(const SelectiveScanTensors& of) {
  for (const torch::Tensor& tensor : {of.x, of.dt, of.a, of.b, of.c, of.d})
    if (tensor.defined() && (!tensor.is_contiguous() || tensor.scalar_type() != of.x.scalar_type()))
      throw InternalError({"selective scan", "a tensor is " + describe(tensor) + ", and x is " + describe(of.x),
                           "contiguous tensors of one type", ""});
}

}  // namespace

SelectiveScanResults selective_scan(const SelectiveScanTensors& of, const torch::Tensor& state) {
  static const auto kOperator =
      c10::Dispatcher::singleton().findSchemaOrThrow("gantry::selective_scan_", "").typed<decltype(scan_on_cpu)>();
  check_scan(of);
  const torch::NoGradGuard no_grad;
  const std::int64_t pieces = (of.x.size(1) + kScanTokens - 1) / kScanTokens;
  SelectiveScanResults made{torch::empty_like(of.x), state.clone(at::MemoryFormat::Contiguous),
                            torch::empty({of.x.size(0), pieces, of.a.size(0), of.a.size(1)}, of.x.options())};
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  if (made.out.numel() > 0)
    kOperator.call(made.out, made.state, made.borders, of.x, of.dt, of.a, of.b, of.c, if_given(of.d),
                   if_given(of.starts));
  return made;
}

SelectiveScanGradients selective_scan_backward(const SelectiveScanTensors& of, const torch::Tensor& borders,
                                               const torch::Tensor& of_out, const torch::Tensor& of_state) {
  static const auto kOperator = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("gantry::selective_scan_backward_", "")
                                    .typed<decltype(scan_backward_on_cpu)>();
  const torch::NoGradGuard no_grad;
  const std::int64_t samples = of.x.size(0), tokens = of.x.size(1), channels = of.x.size(2), states = of.a.size(0);
  const std::int64_t group = of.x.is_cuda() ? kScanBlock : kScanLanes;
  const auto made = [&](torch::IntArrayRef shape) { return torch::empty(shape, of.x.options()); };
  const torch::Tensor of_groups = made({2, samples, (channels + group - 1) / group, tokens, states});
  std::vector<torch::Tensor> to = {torch::empty_like(of.x),
                                   torch::empty_like(of.dt),
                                   made({samples, states, channels}),
                                   of_groups[0],
                                   of_groups[1],
                                   of_state.clone(at::MemoryFormat::Contiguous)};
  if (of.d.defined()) to.push_back(made({samples, channels}));
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  if (of.x.numel() > 0)
    kOperator.call(to, of_out, borders, of.x, of.dt, of.a, of.b, of.c, if_given(of.d), if_given(of.starts));
  return {.x = to[0],
          .dt = to[1],
          .a = to[2].sum(0),
          .b = to[3].sum(1),
          .c = to[4].sum(1),
          .d = of.d.defined() ? to.back().sum(0) : torch::Tensor(),
          .state = to[5]};
}

TORCH_LIBRARY_FRAGMENT(gantry, library) {
  library.def(
      "selective_scan_(Tensor(a!) out, Tensor(b!) state, Tensor(c!) borders, Tensor x, Tensor dt, Tensor a, Tensor b, "
      "Tensor c, Tensor? d, Tensor? starts) -> ()");
  library.def(
      "selective_scan_backward_(Tensor(a!)[] to, Tensor of_out, Tensor borders, Tensor x, Tensor dt, Tensor a, "
      "Tensor b, Tensor c, Tensor? d, Tensor? starts) -> ()");
}

TORCH_LIBRARY_IMPL(gantry, CPU, library) {
  library.impl("selective_scan_", &scan_on_cpu);
  library.impl("selective_scan_backward_", &scan_backward_on_cpu);
}

TORCH_LIBRARY_IMPL(gantry, Meta, library) {
  library.impl("selective_scan_", &no_scan);
  library.impl("selective_scan_backward_", &no_scan_backward);
}

}  // namespace gantry::kernels

#include "gantry/tensors/kernels/causal_convolution.h"

#include <ATen/Parallel.h>
#include <torch/library.h>

#include "gantry/core/error.h"
#include "gantry/tensors/kernels/causal_convolution_arguments.h"
#include "gantry/tensors/kernels/causal_convolution_loops.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::kernels {
namespace {

// Tokens that are convolved together: on a device, a thread takes one channel of them.
constexpr std::int64_t kTokensOfTask = 64, kTokensOfThread = 32;

using OptionalInput = std::optional<at::Tensor>;

// Calls `loop(sample, piece)` for all pieces, on all threads.
template <class T, class A, class Loop>
void for_each_convolved(const ConvolutionInputs<T, A>& of, const Loop& loop) {
  at::parallel_for(0, of.samples * of.pieces(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) loop(i / of.pieces(), i % of.pieces());
  });
}

void convolve_on_cpu(at::Tensor& out, const at::Tensor& x, const OptionalInput& past, const at::Tensor& weight,
                     const OptionalInput& bias, const OptionalInput& reach, bool silu, std::int64_t piece) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "gantry::causal_convolution_", [&] {
    using Sum = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
    const auto of = convolution_inputs<scalar_t, Sum>(x, past, weight, bias, reach, silu, piece);
    auto* const to = out.data_ptr<scalar_t>();
    for_each_convolved(of, [&](std::int64_t sample, std::int64_t i) { convolve_piece(of, to, sample, i); });
  });
}

void convolve_backward_on_cpu(at::TensorList to, const at::Tensor& of_out, const at::Tensor& x,
                              const OptionalInput& past, const at::Tensor& weight, const OptionalInput& bias,
                              const OptionalInput& reach, bool silu, std::int64_t piece) {
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, x.scalar_type(), "gantry::causal_convolution_backward_", [&] {
        using Sum = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
        const auto of = convolution_inputs<scalar_t, Sum>(x, past, weight, bias, reach, silu, piece);
        const auto gradients = convolution_gradients<scalar_t, Sum>(to, of_out);
        for_each_convolved(
            of, [&](std::int64_t sample, std::int64_t i) { convolve_piece_backward(of, gradients, sample, i); });
      });
}

// The meta device: there is nothing to compute.
void no_convolution(at::Tensor&, const at::Tensor&, const OptionalInput&, const at::Tensor&, const OptionalInput&,
                    const OptionalInput&, bool, std::int64_t) {}
void no_convolution_backward(at::TensorList, const at::Tensor&, const at::Tensor&, const OptionalInput&,
                             const at::Tensor&, const OptionalInput&, const OptionalInput&, bool, std::int64_t) {}

OptionalInput if_convolved(const torch::Tensor& tensor) {
  return tensor.defined() ? OptionalInput(tensor) : std::nullopt;
}

void check_convolution(const CausalConvolutionTensors& of) {
  const torch::ScalarType of_sums = of.x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  for (const torch::Tensor& tensor : {of.x, of.past, of.weight, of.bias, of.reach})
    if (tensor.defined() && !tensor.is_contiguous())
      throw InternalError(
          {"causal convolution", "the memory of a tensor " + describe(tensor) + " has gaps", "contiguous tensors", ""});
  if (of.weight.scalar_type() != of_sums)
    throw InternalError({"causal convolution",
                         "the weight is " + describe(of.weight) + ", and the input is " + describe(of.x),
                         "a weight of the type of the sums", ""});
}

std::int64_t tokens_of_piece(const torch::Tensor& x) { return x.is_cuda() ? kTokensOfThread : kTokensOfTask; }

}  // namespace

torch::Tensor causal_convolution(const CausalConvolutionTensors& of) {
  static const auto kOperator = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("gantry::causal_convolution_", "")
                                    .typed<decltype(convolve_on_cpu)>();
  check_convolution(of);
  const torch::NoGradGuard no_grad;
  torch::Tensor out = torch::empty_like(of.x);
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  if (out.numel() > 0)
    kOperator.call(out, of.x, if_convolved(of.past), of.weight, if_convolved(of.bias), if_convolved(of.reach), of.silu,
                   tokens_of_piece(of.x));
  return out;
}

CausalConvolutionGradients causal_convolution_backward(const CausalConvolutionTensors& of,
                                                       const torch::Tensor& of_out) {
  static const auto kOperator = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("gantry::causal_convolution_backward_", "")
                                    .typed<decltype(convolve_backward_on_cpu)>();
  check_convolution(of);
  const torch::NoGradGuard no_grad;
  const std::int64_t samples = of.x.size(0), tokens = of.x.size(1), channels = of.x.size(2), taps = of.weight.size(0);
  const std::int64_t piece = tokens_of_piece(of.x), pieces = (tokens + piece - 1) / piece;
  const auto made = [&](torch::IntArrayRef shape) { return torch::empty(shape, of.weight.options()); };
  const std::vector<torch::Tensor> to = {made(of.x.sizes()), made({samples, pieces, taps, channels}),
                                         made({samples, pieces, channels}), made({samples, taps - 1, channels})};
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  if (of.x.numel() > 0)
    kOperator.call(to, of_out, of.x, if_convolved(of.past), of.weight, if_convolved(of.bias), if_convolved(of.reach),
                   of.silu, piece);
  return {.x = to[0],
          .past = of.past.defined() ? to[3] : torch::Tensor(),
          .weight = to[1].sum(torch::IntArrayRef{0, 1}),
          .bias = of.bias.defined() ? to[2].sum(torch::IntArrayRef{0, 1}) : torch::Tensor()};
}

TORCH_LIBRARY_FRAGMENT(gantry, library) {
  library.def(
      "causal_convolution_(Tensor(a!) out, Tensor x, Tensor? past, Tensor weight, Tensor? bias, Tensor? reach, "
      "bool silu, int piece) -> ()");
  library.def(
      "causal_convolution_backward_(Tensor(a!)[] to, Tensor of_out, Tensor x, Tensor? past, Tensor weight, "
      "Tensor? bias, Tensor? reach, bool silu, int piece) -> ()");
}

TORCH_LIBRARY_IMPL(gantry, CPU, library) {
  library.impl("causal_convolution_", &convolve_on_cpu);
  library.impl("causal_convolution_backward_", &convolve_backward_on_cpu);
}

TORCH_LIBRARY_IMPL(gantry, Meta, library) {
  library.impl("causal_convolution_", &no_convolution);
  library.impl("causal_convolution_backward_", &no_convolution_backward);
}

}  // namespace gantry::kernels

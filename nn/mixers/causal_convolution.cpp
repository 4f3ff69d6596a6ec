#include "gantry/nn/mixers/causal_convolution.h"

#include <optional>

#include "gantry/nn/mixers/documents.h"
#include "gantry/tensors/kernels/causal_convolution.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<torch::Tensor>;

OptionalTensor if_defined(const torch::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

// `of`: input, past inputs, weight, bias and reach.
kernels::CausalConvolutionTensors convolution_tensors(const variable_list& of, bool silu) {
  const torch::ScalarType of_sums = at::promote_types(of[0].scalar_type(), torch::kFloat32);
  const auto close = [](const torch::Tensor& tensor, torch::ScalarType type) {
    return tensor.defined() ? tensor.detach().to(type).contiguous() : tensor;
  };
  return {.x = close(of[0], of[0].scalar_type()),
          .past = close(of[1], of[0].scalar_type()),
          .weight = close(of[2].t(), of_sums),
          .bias = close(of[3], of_sums),
          .reach = of[4],
          .silu = silu};
}

struct ConvolveTokens : torch::autograd::Function<ConvolveTokens> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& input, const OptionalTensor& past,
                               const torch::Tensor& weight, const OptionalTensor& bias, const OptionalTensor& reach,
                               bool silu) {
    const torch::Tensor none;
    const variable_list kept = {input, past.value_or(none), weight, bias.value_or(none), reach.value_or(none)};
    context->save_for_backward(kept);
    context->saved_data["silu"] = silu;
    return kernels::causal_convolution(convolution_tensors(kept, silu));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list of = context->get_saved_variables();
    const auto made = kernels::causal_convolution_backward(
        convolution_tensors(of, context->saved_data["silu"].toBool()), gradients[0].contiguous());
    variable_list all = {made.x, made.past, made.weight.t(), made.bias};
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].defined()) all[i] = all[i].to(of[i].scalar_type());
    all.resize(6);  // those of reach and silu are undefined
    return all;
  }
};

// Number of earlier tokens that a token may read: those of its document, and all with the row's first document.
torch::Tensor reach_of(const torch::Tensor& numbers, std::int64_t past) {
  if (!numbers.defined()) return numbers;
  const torch::Tensor places = torch::arange(numbers.size(1), numbers.options());
  const torch::Tensor before = torch::constant_pad_nd(numbers.narrow(1, 0, numbers.size(1) - 1), {1, 0});
  const torch::Tensor begins = torch::where(numbers.ne(before), places, -past);
  return (places - std::get<0>(begins.cummax(1))).to(torch::kInt32).contiguous();
}

// The last `past` inputs up to the end of `input`; zeros if there are fewer.
torch::Tensor last_inputs(const torch::Tensor& input, const torch::Tensor& before, std::int64_t past) {
  const std::int64_t own = std::min(past, input.size(1));
  const torch::Tensor tail = input.narrow(1, input.size(1) - own, own);
  if (own == past) return tail;
  return before.defined() ? torch::cat({before.narrow(1, own, past - own), tail}, 1)
                          : torch::constant_pad_nd(tail, {0, 0, past - own, 0});
}

}  // namespace

ConvolutionResult causal_convolution(const torch::Tensor& input, const CausalConvolution& by,
                                     const torch::Tensor& state, const torch::Tensor& documents) {
  const std::int64_t past = by.weight.size(1) - 1;
  const torch::Tensor before = state.defined() ? state.transpose(1, 2).to(input.scalar_type()) : state;
  const torch::Tensor numbers = document_numbers(documents);
  const torch::Tensor out = ConvolveTokens::apply(input, if_defined(before), by.weight, if_defined(by.bias),
                                                  if_defined(reach_of(numbers, past)), by.silu);
  torch::Tensor last = last_inputs(input, before, past);
  if (numbers.defined()) {
    const torch::Tensor of_last = torch::constant_pad_nd(numbers, {past, 0}).narrow(1, input.size(1), past);
    last = last * of_last.eq(numbers.narrow(1, -1, 1)).unsqueeze(-1);
  }
  return {out, last.transpose(1, 2).contiguous()};
}

}  // namespace gantry::nn

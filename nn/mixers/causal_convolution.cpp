#include "gantry/nn/mixers/causal_convolution.h"

#include <optional>

#include "gantry/nn/mixers/documents.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<torch::Tensor>;

OptionalTensor if_defined(const torch::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

// The tokens with their past, [samples, taps - 1 + tokens, channels], in the type of the sums.
struct PaddedTokens {
  torch::Tensor padded;   // the inputs
  torch::Tensor numbers;  // int64 [samples, taps - 1 + tokens], of documents; undefined: one document
  std::int64_t tokens;

  // The inputs that the tokens multiply by tap j.
  torch::Tensor inputs(std::int64_t j) const { return of_document(padded.narrow(1, j, tokens), j); }
  // Zero for tokens whose input at tap j is of another document.
  torch::Tensor of_document(const torch::Tensor& values, std::int64_t j) const {
    const std::int64_t past = padded.size(1) - tokens;
    if (!numbers.defined() || j == past) return values;
    return values * numbers.narrow(1, j, tokens).eq(numbers.narrow(1, past, tokens)).unsqueeze(-1);
  }
  torch::Tensor sums(const torch::Tensor& weight, const OptionalTensor& bias) const {
    torch::Tensor sum = torch::zeros({padded.size(0), tokens, padded.size(2)}, padded.options());
    if (bias) sum += *bias;
    for (std::int64_t j = 0; j < weight.size(1); ++j) sum.addcmul_(inputs(j), weight.select(1, j));
    return sum;
  }
};

PaddedTokens padded_tokens(const torch::Tensor& padded, const torch::Tensor& numbers, std::int64_t taps) {
  return {padded.to(at::promote_types(padded.scalar_type(), torch::kFloat32)), numbers, padded.size(1) - taps + 1};
}

struct ConvolveTokens : torch::autograd::Function<ConvolveTokens> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& padded, const torch::Tensor& weight,
                               const OptionalTensor& bias, const OptionalTensor& numbers, bool silu) {
    context->save_for_backward({padded, weight, bias.value_or(torch::Tensor()), numbers.value_or(torch::Tensor())});
    context->saved_data["silu"] = silu;
    const torch::Tensor sums =
        padded_tokens(padded, numbers.value_or(torch::Tensor()), weight.size(1)).sums(weight, bias);
    return (silu ? torch::silu(sums) : sums).to(padded.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const torch::Tensor &weight = saved[1], &bias = saved[2];
    const PaddedTokens tokens = padded_tokens(saved[0], saved[3], weight.size(1));
    torch::Tensor gradient = gradients.front().to(tokens.padded.scalar_type());
    if (context->saved_data["silu"].toBool())
      gradient = torch::silu_backward(gradient, tokens.sums(weight, if_defined(bias)));
    const torch::Tensor to_padded = torch::zeros_like(tokens.padded);
    variable_list to_weight;
    for (std::int64_t j = 0; j < weight.size(1); ++j) {
      to_padded.narrow(1, j, tokens.tokens).addcmul_(tokens.of_document(gradient, j), weight.select(1, j));
      to_weight.push_back((gradient * tokens.inputs(j)).sum(torch::IntArrayRef{0, 1}));
    }
    return {to_padded.to(saved[0].scalar_type()),
            torch::stack(to_weight, 1).to(weight.scalar_type()),
            bias.defined() ? gradient.sum(torch::IntArrayRef{0, 1}).to(bias.scalar_type()) : bias,
            {},
            {}};
  }
};

}  // namespace

ConvolutionResult causal_convolution(const torch::Tensor& input, const CausalConvolution& by,
                                     const torch::Tensor& state, const torch::Tensor& documents) {
  const std::int64_t past = by.weight.size(1) - 1;
  const torch::Tensor padded = state.defined() ? torch::cat({state.transpose(1, 2).to(input.scalar_type()), input}, 1)
                                               : torch::constant_pad_nd(input, {0, 0, past, 0});
  torch::Tensor numbers = document_numbers(documents);
  if (numbers.defined()) numbers = torch::constant_pad_nd(numbers, {past, 0});
  const torch::Tensor out = ConvolveTokens::apply(padded, by.weight, if_defined(by.bias), if_defined(numbers), by.silu);
  torch::Tensor last = padded.narrow(1, input.size(1), past);
  if (numbers.defined())
    last = last * numbers.narrow(1, input.size(1), past).eq(numbers.narrow(1, -1, 1)).unsqueeze(-1);
  return {out, last.transpose(1, 2).contiguous()};
}

}  // namespace gantry::nn

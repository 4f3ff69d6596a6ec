#include "gantry/nn/grouped_linear.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/weight_gradient.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/quantized_weight.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// [experts, in, out], for both layouts of the weight.
torch::Tensor matrices_of(const torch::Tensor& weight, bool input_is_first) {
  return input_is_first ? weight : weight.transpose(1, 2);
}

// input [rows, in] times the experts' matrices [in, out], plus the biases. `encoding`: for a weight that
// consists of records.
torch::Tensor products(const torch::Tensor& input, const torch::Tensor& weight, bool input_is_first,
                       const torch::Tensor& bias, const ExpertRows& of, const std::optional<RowEncoding>& encoding) {
  if (!encoding) return rows_by_matrices(input, matrices_of(weight, input_is_first), bias, of);
  const auto matrix_of = [&](std::int64_t expert) {
    const torch::Tensor values = unpack_records(*encoding, weight.select(0, expert), input.scalar_type());
    return input_is_first ? values : values.t();
  };
  return rows_by_each_matrix(input, input_is_first ? encoding->columns : weight.size(1), matrix_of, bias, of);
}

// The encoding as saved for the backward pass.
using SavedData = ska::flat_hash_map<std::string, at::IValue>;

void save_encoding(SavedData& data, const std::optional<RowEncoding>& encoding) {
  if (encoding)
    data["encoding"] = std::vector<std::int64_t>{static_cast<std::int64_t>(encoding->code), encoding->columns,
                                                 encoding->group, encoding->runs};
}

std::optional<RowEncoding> saved_encoding(const SavedData& data) {
  const auto found = data.find("encoding");
  if (found == data.end()) return std::nullopt;
  const auto numbers = found->second.toIntVector();
  return RowEncoding{static_cast<WeightCode>(numbers[0]), numbers[1], numbers[2], numbers[3]};
}

// Adds to the gradient of the weight, or of the bias, from the gradient of the output rows.
struct GroupedGradient {
  torch::Tensor rows, gradient;
  ExpertRows of;
  bool input_is_first;

  void add_weight(torch::Tensor& into) const {
    if (input_is_first)
      add_rows_by_rows(into, rows, gradient, of);
    else
      add_rows_by_rows(into, gradient, rows, of);
  }
  void add_bias(torch::Tensor& into) const {
    for_each_expert(of.counts, [&](std::int64_t expert, std::int64_t begin, std::int64_t count) {
      into.select(0, expert).add_(gradient.narrow(0, begin, count).sum(0, false, into.scalar_type()));
    });
  }
};

struct GroupedLinear : torch::autograd::Function<GroupedLinear> {
  static Variable forward(AutogradContext* context, const Variable& input, const Variable& weight,
                          const std::optional<torch::Tensor>& bias, const ExpertRows& of, bool input_is_first,
                          const std::optional<RowEncoding>& encoding) {
    context->save_for_backward({input, weight, bias.value_or(torch::Tensor()), of.ends});
    context->saved_data["counts"] = of.counts;
    context->saved_data["input_is_first"] = input_is_first;
    context->saved_data["store"] = reinterpret_cast<std::int64_t>(forward_now().weight_gradients);
    save_encoding(context->saved_data, encoding);
    return products(input, weight, input_is_first, bias.value_or(torch::Tensor()), of, encoding);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const bool input_is_first = context->saved_data["input_is_first"].toBool();
    const GroupedGradient parts{
        saved[0], gradients[0], {context->saved_data["counts"].toIntVector(), saved[3]}, input_is_first};
    variable_list results(6);
    if (context->needs_input_grad(0))
      results[0] = products(gradients[0], saved[1], !input_is_first, {}, parts.of, saved_encoding(context->saved_data));
    auto* store = reinterpret_cast<WeightGradientStore*>(context->saved_data["store"].toInt());
    const auto add_weight = [parts](torch::Tensor& into) { parts.add_weight(into); };
    const auto add_bias = [parts](torch::Tensor& into) { parts.add_bias(into); };
    const auto made = [](const torch::Tensor& like, const auto& add) {
      torch::Tensor gradient = torch::zeros_like(like);
      add(gradient);
      return gradient;
    };
    results[1] = give_gradient(saved[1], store, add_weight, [&] { return made(saved[1], add_weight); });
    results[2] = give_gradient(saved[2], store, add_bias, [&] { return made(saved[2], add_bias); });
    return results;
  }
};

}  // namespace

torch::Tensor grouped_linear(const torch::Tensor& input, const GroupedWeight& weight,
                             const std::vector<std::int64_t>& counts, std::optional<GroupedProducts> how) {
  if (weight.encoding) how = GroupedProducts::kByExpert;
  const GroupedOperands operands = operands_of(input, matrices_of(weight.weight, weight.input_is_first));
  if (how == GroupedProducts::kAtOnce && !can_go_at_once(operands))
    throw InternalError({"grouped products",
                         fmt::format("one kernel cannot multiply {} matrices of {} by {}",
                                     torch::toString(operands.type), operands.in, operands.out),
                         "bfloat16, float16 or float32 in rows of a multiple of 16 bytes", ""});
  std::optional<torch::Tensor> bias;
  if (weight.bias.defined()) bias = weight.bias;
  const ExpertRows of = expert_rows(counts, how.value_or(choose_products(operands)), input.device());
  return GroupedLinear::apply(input, weight.weight, bias, of, weight.input_is_first, weight.encoding);
}

}  // namespace gantry::nn

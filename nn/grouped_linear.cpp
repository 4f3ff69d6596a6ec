#include "gantry/nn/grouped_linear.h"

#include <torch/torch.h>

#include "gantry/nn/forward.h"
#include "gantry/nn/weight_gradient.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Calls `take` with each expert that has rows, and where they begin.
template <class Take>
void for_each_expert(const std::vector<std::int64_t>& counts, const Take& take) {
  std::int64_t begin = 0;
  for (std::size_t expert = 0; expert < counts.size(); ++expert) {
    if (counts[expert] > 0) take(static_cast<std::int64_t>(expert), begin, counts[expert]);
    begin += counts[expert];
  }
}

// What the rows' gradient makes of a gradient of the weight, or of the bias.
struct GroupedGradient {
  torch::Tensor rows, gradient;
  std::vector<std::int64_t> counts;
  bool input_is_first;

  void add_weight(torch::Tensor& into) const {
    for_each_expert(counts, [&](std::int64_t expert, std::int64_t begin, std::int64_t count) {
      const torch::Tensor in = rows.narrow(0, begin, count), out = gradient.narrow(0, begin, count);
      torch::Tensor part = into.select(0, expert);
      if (input_is_first)
        add_product(part, in.t(), out);
      else
        add_product(part, out.t(), in);
    });
  }
  void add_bias(torch::Tensor& into) const {
    for_each_expert(counts, [&](std::int64_t expert, std::int64_t begin, std::int64_t count) {
      into.select(0, expert).add_(gradient.narrow(0, begin, count).sum(0, false, into.scalar_type()));
    });
  }
};

struct GroupedLinear : torch::autograd::Function<GroupedLinear> {
  static Variable forward(AutogradContext* context, const Variable& input, const Variable& weight,
                          const std::optional<torch::Tensor>& bias, const std::vector<std::int64_t>& counts,
                          bool input_is_first) {
    torch::Tensor output = torch::empty({input.size(0), weight.size(input_is_first ? 2 : 1)}, input.options());
    for_each_expert(counts, [&](std::int64_t expert, std::int64_t begin, std::int64_t count) {
      torch::Tensor out = output.narrow(0, begin, count);
      const torch::Tensor in = input.narrow(0, begin, count), matrix = weight.select(0, expert);
      const torch::Tensor turned = input_is_first ? matrix : matrix.t();
      if (bias)
        at::addmm_out(out, bias->select(0, expert), in, turned);
      else
        at::mm_out(out, in, turned);
    });
    context->save_for_backward({input, weight, bias.value_or(torch::Tensor())});
    context->saved_data["counts"] = counts;
    context->saved_data["input_is_first"] = input_is_first;
    context->saved_data["store"] = reinterpret_cast<std::int64_t>(forward_now().weight_gradients);
    return output;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const bool input_is_first = context->saved_data["input_is_first"].toBool();
    const GroupedGradient parts{saved[0], gradients[0], context->saved_data["counts"].toIntVector(), input_is_first};
    variable_list results(5);
    if (context->needs_input_grad(0)) {
      results[0] = torch::empty_like(saved[0]);
      for_each_expert(parts.counts, [&](std::int64_t expert, std::int64_t begin, std::int64_t count) {
        torch::Tensor out = results[0].narrow(0, begin, count);
        const torch::Tensor matrix = saved[1].select(0, expert);
        at::mm_out(out, gradients[0].narrow(0, begin, count), input_is_first ? matrix.t() : matrix);
      });
    }
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
                             const std::vector<std::int64_t>& counts) {
  std::optional<torch::Tensor> bias;
  if (weight.bias.defined()) bias = weight.bias;
  return GroupedLinear::apply(input, weight.weight, bias, counts, weight.input_is_first);
}

}  // namespace gantry::nn

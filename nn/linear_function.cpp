#include "gantry/nn/linear_function.h"

#include <array>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/layout.h"
#include "gantry/nn/row_pieces.h"
#include "gantry/tensors/aligned_rows.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/quantized_weight.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr std::int64_t kNotGathered = -1;
constexpr std::size_t kBeforeWeights = 6;  // arguments of LinearFunction before the weights
using OptionalTensor = std::optional<torch::Tensor>;

// The gradient of the input: summed or reduce-scattered over the group, or unchanged without a group.
class InputGradient {
 public:
  InputGradient(torch::Tensor gradient, ProcessGroup* group, std::int64_t gather_dim, const Sizes& sizes)
      : gradient_(std::move(gradient)), scattered_(gather_dim != kNotGathered) {
    if (scattered_)
      part_ = start_reduce_scatter_along(*group, gradient_, static_cast<int>(gather_dim), sizes);
    else if (group)
      sum_ = group->all_reduce(gradient_);
  }
  torch::Tensor wait() {
    if (scattered_) return part_.wait();
    sum_.wait();
    return gradient_;
  }

 private:
  torch::Tensor gradient_;
  PendingPart part_;
  Work sum_;
  bool scattered_;
};

// The weights and biases that read one input, as arguments of LinearFunction. Elements after the last weight
// are empty.
using Readers = std::array<std::pair<OptionalTensor, OptionalTensor>, kMostWeights>;

// The code of a call in which no weight consists of records.
constexpr std::int64_t kNoCode = -1;

torch::Tensor values_to_multiply(const torch::Tensor& weight, const torch::Tensor& rows, std::int64_t code,
                                 std::int64_t group, std::int64_t runs) {
  if (code == kNoCode || !has_records(weight)) return weight;
  return unpack_records({static_cast<WeightCode>(code), rows.size(-1), group, runs}, weight, rows.scalar_type());
}

// tensor[part] along a dimension.
torch::Tensor part_of(const torch::Tensor& tensor, std::int64_t dim, const Range& part) {
  return part.size() == tensor.size(dim) ? tensor : tensor.narrow(dim, part.begin, part.size());
}

torch::Tensor read_rows(const torch::Tensor& rows, const OptionalTensor& weight, const OptionalTensor& bias) {
  torch::Tensor outputs = empty_aligned_rows(rows.size(0), weight->size(0), rows.options());
  for (const Range& part : product_parts(weight->size(0), rows.options())) {
    torch::Tensor made = part_of(outputs, 1, part);
    const torch::Tensor read = part_of(*weight, 0, part).t();
    bias ? at::addmm_out(made, part_of(*bias, 0, part), rows, read) : at::mm_out(made, rows, read);
  }
  return outputs;
}

// sum + gradient weight; an undefined sum is 0. The largest part comes last, because in half precisions the
// sum is rounded after each part.
torch::Tensor with_input_gradient(torch::Tensor sum, const torch::Tensor& gradient, const torch::Tensor& weight) {
  const std::vector<Range> parts = product_parts(weight.size(0), gradient.options());
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    const torch::Tensor of_part = part_of(gradient, 1, *part), read = part_of(weight, 0, *part);
    sum = sum.defined() ? sum.addmm_(of_part, read) : at::mm(of_part, read);
  }
  return sum;
}

// The gathered input, and the output of each reader.
struct Gathered {
  torch::Tensor full;
  variable_list outputs;
};

Gathered gather_and_read(ProcessGroup& group, const torch::Tensor& part, std::int64_t dim, const Sizes& sizes,
                         const Readers& readers) {
  ArrivingPieces arriving(group, part, dim, sizes, forward_now().tensor_pieces);
  std::vector<std::int64_t> shape = arriving.full().sizes().vec();
  Gathered gathered{arriving.full(), {}};
  for (const auto& [weight, bias] : readers) {
    if (!weight) break;
    shape.back() = weight->size(0);
    gathered.outputs.push_back(at::empty(shape, part.options()));
  }
  for (int piece = 0; piece < arriving.chunks().count(); ++piece) {
    const torch::Tensor arrived = arriving.take(piece);
    const torch::Tensor rows = arrived.reshape({-1, arrived.size(-1)});
    std::vector<std::int64_t> of_piece = arrived.sizes().vec();
    for (std::size_t i = 0; i < gathered.outputs.size(); ++i) {
      const auto& [weight, bias] = readers[i];
      of_piece.back() = weight->size(0);
      arriving.chunks().place_in_full(gathered.outputs[i], piece, read_rows(rows, weight, bias).view(of_piece));
    }
  }
  return gathered;
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static variable_list forward(AutogradContext* context, const Variable& input, ProcessGroup* group,
                               std::int64_t gather_dim, std::int64_t code, std::int64_t scale_group,
                               std::int64_t scale_runs, const OptionalTensor& weight0, const OptionalTensor& bias0,
                               const OptionalTensor& weight1, const OptionalTensor& bias1,
                               const OptionalTensor& weight2, const OptionalTensor& bias2,
                               const OptionalTensor& weight3, const OptionalTensor& bias3,
                               const OptionalTensor& weight4, const OptionalTensor& bias4,
                               const OptionalTensor& weight5, const OptionalTensor& bias5) {
    const bool gathers = gather_dim != kNotGathered;
    Sizes sizes;
    if (gathers) sizes = shard_sizes(input.size(gather_dim), *group);
    const Readers given = {
        {{weight0, bias0}, {weight1, bias1}, {weight2, bias2}, {weight3, bias3}, {weight4, bias4}, {weight5, bias5}}};
    Readers readers = given;
    for (auto& [weight, bias] : readers)
      if (weight) weight = values_to_multiply(*weight, input, code, scale_group, scale_runs);
    Gathered made{input, {}};
    if (gathers && goes_in_pieces(input, static_cast<int>(gather_dim), *group))
      made = gather_and_read(*group, input, gather_dim, sizes, readers);
    else if (gathers)
      made.full = all_gather_along(*group, input, static_cast<int>(gather_dim), sizes);
    const torch::Tensor& full = made.full;
    const torch::Tensor rows = full.reshape({-1, full.size(-1)});
    variable_list saved{rows};
    const bool is_read = !made.outputs.empty();
    std::vector<std::int64_t> shape = full.sizes().vec();
    for (std::size_t i = 0; i < kMostWeights && given[i].first; ++i) {
      const auto& [weight, bias] = readers[i];
      saved.push_back(*given[i].first);
      saved.push_back(bias.value_or(torch::Tensor()));
      shape.back() = weight->size(0);
      if (!is_read) made.outputs.push_back(read_rows(rows, weight, bias).view(shape));
    }
    context->save_for_backward(saved);
    context->saved_data["shape"] = full.sizes().vec();
    context->saved_data["group"] = reinterpret_cast<std::int64_t>(group);
    context->saved_data["sizes"] = sizes;
    context->saved_data["gather_dim"] = gather_dim;
    context->saved_data["code"] = code;
    context->saved_data["scale_group"] = scale_group;
    context->saved_data["scale_runs"] = scale_runs;
    context->saved_data["store"] = reinterpret_cast<std::int64_t>(forward_now().weight_gradients);
    return made.outputs;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    auto* group = reinterpret_cast<ProcessGroup*>(context->saved_data["group"].toInt());
    for (std::size_t i = 0; i < gradients.size(); ++i)
      gradients[i] = gradients[i].reshape({-1, saved[1 + 2 * i].size(0)});

    std::optional<InputGradient> input_gradient;
    if (context->needs_input_grad(0)) {
      torch::Tensor sum;
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        const torch::Tensor weight =
            values_to_multiply(saved[1 + 2 * i], saved[0], context->saved_data["code"].toInt(),
                               context->saved_data["scale_group"].toInt(), context->saved_data["scale_runs"].toInt());
        sum = with_input_gradient(std::move(sum), gradients[i], weight);
      }
      input_gradient.emplace(sum.view(context->saved_data["shape"].toIntVector()), group,
                             context->saved_data["gather_dim"].toInt(), context->saved_data["sizes"].toIntVector());
    }
    auto* store = reinterpret_cast<WeightGradientStore*>(context->saved_data["store"].toInt());
    variable_list results(kBeforeWeights + 2 * kMostWeights);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const torch::Tensor& gradient = gradients[i];
      results[kBeforeWeights + 2 * i] = give_product_gradient(saved[1 + 2 * i], store, gradient, saved[0]);
      results[kBeforeWeights + 2 * i + 1] = give_gradient(
          saved[2 + 2 * i], store, [=](torch::Tensor& into) { into.add_(gradient.sum(0, false, into.scalar_type())); },
          [&] { return gradient.sum(0); });
    }
    if (input_gradient) results[0] = input_gradient->wait();
    return results;
  }
};

}  // namespace

torch::Tensor give_product_gradient(const torch::Tensor& weight, WeightGradientStore* store,
                                    const torch::Tensor& gradient, const torch::Tensor& rows) {
  return give_gradient(
      weight, store,
      [=](torch::Tensor& into) {
        for (const Range& part : product_parts(into.size(0), gradient.options())) {
          torch::Tensor of_part = part_of(into, 0, part);
          add_product(of_part, part_of(gradient, 1, part).t(), rows);
        }
      },
      [&] { return at::mm(gradient.t(), rows); });
}

std::vector<torch::Tensor> linear(const torch::Tensor& input, const std::vector<LinearWeight>& weights,
                                  const LinearInput& how) {
  if (weights.empty() || weights.size() > kMostWeights)
    throw InternalError({"linear", std::to_string(weights.size()) + " weights multiply one input", "1 to 6", ""});
  std::array<OptionalTensor, 2 * kMostWeights> tensors;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    tensors[2 * i] = weights[i].weight;
    if (weights[i].bias.defined()) tensors[2 * i + 1] = weights[i].bias;
  }
  ProcessGroup* group = how.group && how.group->size() > 1 ? how.group : nullptr;
  std::int64_t gather_dim = kNotGathered;
  if (group && how.gather_dim) gather_dim = *how.gather_dim < 0 ? *how.gather_dim + input.dim() : *how.gather_dim;
  std::int64_t code = kNoCode, scale_group = 0, scale_runs = 0;
  for (const LinearWeight& weight : weights)
    if (weight.encoding) {
      code = static_cast<std::int64_t>(weight.encoding->code);
      scale_group = weight.encoding->group;
      scale_runs = weight.encoding->runs;
    }
  return LinearFunction::apply(input, group, gather_dim, code, scale_group, scale_runs, tensors[0], tensors[1],
                               tensors[2], tensors[3], tensors[4], tensors[5], tensors[6], tensors[7], tensors[8],
                               tensors[9], tensors[10], tensors[11]);
}

}  // namespace gantry::nn

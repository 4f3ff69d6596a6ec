#include "gantry/nn/summed_linear.h"

#include <algorithm>

#include "gantry/nn/forward.h"
#include "gantry/nn/layout.h"
#include "gantry/nn/linear_function.h"
#include "gantry/nn/row_pieces.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr std::int64_t kNotScattered = -1;

// A sum of some rows in flight.
struct PendingSum {
  torch::Tensor brought, sum;
  Work work;
};

torch::Tensor times(const torch::Tensor& rows, const torch::Tensor& weight) {
  std::vector<std::int64_t> shape = rows.sizes().vec();
  shape.back() = weight.size(0);
  return at::mm(rows.reshape({-1, weight.size(1)}), weight.t()).view(shape);
}

torch::Tensor sum_of_all(const torch::Tensor& part, const torch::Tensor& weight, ProcessGroup& group, int pieces) {
  std::vector<std::int64_t> shape = part.sizes().vec();
  shape.back() = weight.size(0);
  const torch::Tensor rows = part.reshape({-1, weight.size(1)});
  const std::int64_t all = rows.size(0), count = std::clamp<std::int64_t>(pieces, 1, std::max<std::int64_t>(all, 1));
  torch::Tensor sum = at::empty({all, weight.size(0)}, rows.options());
  std::vector<Work> works;
  for (std::int64_t piece = 0; piece < count; ++piece) {
    const std::int64_t begin = all * piece / count, size = all * (piece + 1) / count - begin;
    torch::Tensor of_piece = sum.narrow(0, begin, size);
    at::mm_out(of_piece, rows.narrow(0, begin, size), weight.t());
    works.push_back(group.all_reduce(of_piece));
  }
  for (Work& work : works) work.wait();
  return sum.view(shape);
}

torch::Tensor own_part_of_sum(const torch::Tensor& part, const torch::Tensor& weight, ProcessGroup& group,
                              const RowChunks& chunks) {
  std::vector<PendingSum> sums;
  for (int piece = 0; piece < chunks.count(); ++piece) {
    PendingSum& one = sums.emplace_back();
    const Sizes sizes = chunks.sizes(piece);
    one.brought = times(chunks.of_full(part, piece), weight);
    std::vector<std::int64_t> shape = one.brought.sizes().vec();
    shape[0] = sizes[group.rank()];
    one.sum = at::empty(shape, one.brought.options());
    one.work = group.reduce_scatter(one.sum, one.brought, sizes);
  }
  std::vector<std::int64_t> shape = part.sizes().vec();
  shape.back() = weight.size(0);
  shape[chunks.dim()] = partition_sizes(part.size(chunks.dim()), group)[group.rank()];
  torch::Tensor own = at::empty(shape, part.options());
  for (int piece = 0; piece < chunks.count(); ++piece) {
    sums[piece].work.wait();
    chunks.place_in_part(own, group.rank(), piece, sums[piece].sum);
  }
  return own;
}

struct SummedLinear : torch::autograd::Function<SummedLinear> {
  static Variable forward(AutogradContext* context, const Variable& part, const Variable& weight, ProcessGroup* group,
                          std::int64_t dim, std::int64_t pieces) {
    context->save_for_backward({part, weight});
    context->saved_data["group"] = reinterpret_cast<std::int64_t>(group);
    context->saved_data["dim"] = dim;
    context->saved_data["pieces"] = pieces;
    context->saved_data["store"] = reinterpret_cast<std::int64_t>(forward_now().weight_gradients);
    if (dim == kNotScattered) return sum_of_all(part, weight, *group, static_cast<int>(pieces));
    const RowChunks chunks(partition_sizes(part.size(dim), *group), dim, static_cast<int>(pieces));
    return own_part_of_sum(part, weight, *group, chunks);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &part = saved[0], &weight = saved[1];
    const bool needs_input = context->needs_input_grad(0);
    torch::Tensor full, of_input;
    if (const std::int64_t dim = context->saved_data["dim"].toInt(); dim == kNotScattered) {
      full = gradients[0];
      if (needs_input) of_input = times(full, weight.t());
    } else {
      auto& group = *reinterpret_cast<ProcessGroup*>(context->saved_data["group"].toInt());
      ArrivingPieces arriving(group, gradients[0], dim, partition_sizes(part.size(dim), group),
                              static_cast<int>(context->saved_data["pieces"].toInt()));
      if (needs_input) of_input = at::empty(part.sizes(), part.options());
      for (int piece = 0; piece < arriving.chunks().count(); ++piece) {
        const torch::Tensor of_piece = arriving.take(piece);
        if (needs_input) arriving.chunks().place_in_full(of_input, piece, times(of_piece, weight.t()));
      }
      full = arriving.full();
    }
    auto* store = reinterpret_cast<WeightGradientStore*>(context->saved_data["store"].toInt());
    variable_list results(5);
    results[0] = of_input;
    results[1] =
        give_product_gradient(weight, store, full.reshape({-1, weight.size(0)}), part.reshape({-1, weight.size(1)}));
    return results;
  }
};

}  // namespace

torch::Tensor summed_linear(const torch::Tensor& part, const torch::Tensor& weight, ProcessGroup& group,
                            std::optional<int> dim) {
  return SummedLinear::apply(part, weight, &group, dim ? c10::maybe_wrap_dim(*dim, part.dim()) : kNotScattered,
                             std::int64_t{forward_now().tensor_pieces});
}

}  // namespace gantry::nn

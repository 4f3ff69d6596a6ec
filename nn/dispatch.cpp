#include "gantry/nn/dispatch.h"

#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// [items, copies, size] -> [items, size], in the order of the copies.
torch::Tensor added_copies(const torch::Tensor& rows) {
  const auto copies = rows.unbind(1);
  torch::Tensor sum = copies[0];
  for (std::size_t i = 1; i < copies.size(); ++i) sum = sum + copies[i];
  return sum;
}

// Rows `index` of the input, `copies` times each: copy c of row i is at back[i * copies + c]. So the gradient
// is gathered and added in this order, instead of being scattered in an arbitrary one.
struct TakeRows : torch::autograd::Function<TakeRows> {
  static Variable forward(AutogradContext* context, const Variable& input, const torch::Tensor& index,
                          const torch::Tensor& back, std::int64_t copies) {
    context->save_for_backward({back});
    context->saved_data["copies"] = copies;
    return input.index_select(0, index);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const std::int64_t copies = context->saved_data["copies"].toInt();
    const torch::Tensor rows = gradients[0].index_select(0, context->get_saved_variables()[0]);
    return {copies == 1 ? rows : added_copies(rows.view({rows.size(0) / copies, copies, rows.size(1)})), {}, {}, {}};
  }
};

}  // namespace

Dispatch dispatch_by_expert(const torch::Tensor& ids, std::int64_t experts) {
  const torch::Tensor chosen = ids.reshape({-1});
  Dispatch dispatch{.slots = chosen.argsort(/*stable=*/true, 0, /*descending=*/false),
                    .places = torch::empty_like(chosen),
                    .counts = {},
                    .used = ids.size(1)};
  dispatch.places.index_copy_(0, dispatch.slots, torch::arange(chosen.size(0), chosen.options()));
  const torch::Tensor counts = (chosen.unsqueeze(1) == torch::arange(experts, chosen.options())).sum(0);
  for (const double count : read_back({counts})) dispatch.counts.push_back(static_cast<std::int64_t>(count));
  return dispatch;
}

torch::Tensor rows_by_expert(const torch::Tensor& tokens, const Dispatch& dispatch) {
  return TakeRows::apply(tokens, dispatch.slots.floor_divide(dispatch.used), dispatch.places, dispatch.used);
}

torch::Tensor weighted_rows(const torch::Tensor& rows, const torch::Tensor& weights, const Dispatch& dispatch) {
  return rows * TakeRows::apply(weights.reshape({-1, 1}), dispatch.slots, dispatch.places, 1);
}

torch::Tensor combined_rows(const torch::Tensor& rows, const torch::Tensor& weights, const Dispatch& dispatch) {
  const torch::Tensor by_slot = TakeRows::apply(rows, dispatch.places, dispatch.slots, 1);
  const torch::Tensor by_token = by_slot.view({weights.size(0), dispatch.used, rows.size(1)});
  return added_copies(by_token * weights.unsqueeze(-1));
}

}  // namespace gantry::nn

#include "gantry/nn/mixers/selective_scan.h"

#include <optional>

#include "gantry/nn/mixers/chunk_states.h"
#include "gantry/tensors/kernels/selective_scan.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using OptionalPart = std::optional<torch::Tensor>;

// In wide_type(), contiguous. `of`: the tensors in the order of SelectiveScanInputs, and the tokens that begin
// documents.
kernels::SelectiveScanTensors scan_tensors(const variable_list& of) {
  const auto wide = [type = wide_type(of[0])](const torch::Tensor& tensor) {
    return tensor.defined() ? tensor.detach().to(type).contiguous() : tensor;
  };
  return {wide(of[0]), wide(of[1]), wide(of[2].t()), wide(of[3]), wide(of[4]), wide(of[5]), of[6]};
}

// The kernels have the channels last: [samples, states, channels].
struct SelectiveScan : torch::autograd::Function<SelectiveScan> {
  static variable_list forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& dt,
                               const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& c,
                               const OptionalPart& d, const OptionalPart& starts, const torch::Tensor& state) {
    variable_list kept = {x, dt, a, b, c, d.value_or(torch::Tensor()), starts.value_or(torch::Tensor())};
    const auto made = kernels::selective_scan(scan_tensors(kept), state.transpose(1, 2));
    kept.push_back(made.borders);
    context->save_for_backward(kept);
    return {made.out.to(x.scalar_type()), made.state.transpose(1, 2).contiguous()};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list of = context->get_saved_variables();
    const kernels::SelectiveScanTensors tensors = scan_tensors(of);
    const torch::Tensor of_out = gradients[0].to(tensors.x.scalar_type()).contiguous();
    const auto made = kernels::selective_scan_backward(tensors, of.back(), of_out, gradients[1].transpose(1, 2));
    variable_list all = {made.x, made.dt, made.a.t(), made.b, made.c, made.d};
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].defined()) all[i] = all[i].to(of[i].scalar_type());
    all.emplace_back();  // the tokens that begin documents have no gradient
    all.push_back(made.state.transpose(1, 2));
    return all;
  }
};

// Bool [samples, tokens]; none without documents.
OptionalPart document_starts(const torch::Tensor& documents) {
  if (!documents.defined()) return std::nullopt;
  const std::int64_t later = documents.size(1) - 1;
  return torch::constant_pad_nd(documents.narrow(1, 1, later).ne(documents.narrow(1, 0, later)), {1, 0}).contiguous();
}

}  // namespace

RecurrenceResult selective_scan(const SelectiveScanInputs& inputs, const torch::Tensor& state,
                                const torch::Tensor& documents) {
  const torch::Tensor before = state_or_zeros(state, {inputs.x.size(0), inputs.a.size(0), inputs.a.size(1)},
                                              torch::empty({0}, inputs.x.options().dtype(wide_type(inputs.x))));
  const OptionalPart d = inputs.d.defined() ? OptionalPart(inputs.d) : std::nullopt;
  const variable_list made =
      SelectiveScan::apply(inputs.x, inputs.dt, inputs.a, inputs.b, inputs.c, d, document_starts(documents), before);
  return {made[0], made[1]};
}

RecurrenceResult selective_scan_step(const SelectiveScanInputs& inputs, const torch::Tensor& state) {
  const torch::ScalarType type = wide_type(inputs.x);
  const auto token = [&](const torch::Tensor& of) { return of.select(1, 0).to(type); };
  const torch::Tensor dt = token(inputs.dt), a = inputs.a.to(type);
  const torch::Tensor before = state_or_zeros(state, {dt.size(0), a.size(0), a.size(1)}, dt);
  const torch::Tensor after =
      torch::exp(dt.unsqueeze(-1) * a) * before + (dt * token(inputs.x)).unsqueeze(-1) * token(inputs.b).unsqueeze(-2);
  torch::Tensor out = torch::matmul(after, token(inputs.c).unsqueeze(-1)).squeeze(-1);
  if (inputs.d.defined()) out = out + token(inputs.x) * inputs.d.to(type);
  return {out.unsqueeze(1).to(inputs.x.scalar_type()), after};
}

}  // namespace gantry::nn

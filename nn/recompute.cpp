#include "gantry/nn/recompute.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "gantry/nn/forward.h"
#include "gantry/nn/router_balance.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// The state of the second forward. The graph holds it until its backward.
struct Second : torch::CustomClassHolder {
  RecomputedAll part;
  Forward forward;        // the state of the first forward
  variable_list outputs;  // results of the first forward if it ran before the node was created

  variable_list first_forward(const variable_list& inputs, std::vector<std::string>& losses) const {
    return run(inputs, forward, losses);
  }
  // It reports nothing, and its losses are not added: the first forward has done both.
  variable_list second_forward(const variable_list& inputs) const {
    const torch::AutoGradMode record(true);
    Forward known = forward;
    known.observer = nullptr;
    known.report = nullptr;
    if (known.routing) known.routing = known.routing->again();
    known.choices = nullptr;
    std::vector<std::string> losses;
    return run(inputs, std::move(known), losses);
  }

 private:
  // Returns the part's outputs, followed by the losses that it adds. Appends the names of the losses to
  // `names`.
  variable_list run(const variable_list& inputs, Forward known, std::vector<std::string>& names) const {
    TensorDict losses;
    known.losses = &losses;
    const ForwardScope scope(std::move(known));
    variable_list outputs = part(inputs);
    for (const auto& [name, loss] : losses) {
      names.push_back(name);
      outputs.push_back(loss);
    }
    return outputs;
  }
};

struct Recompute : torch::autograd::Function<Recompute> {
  // `anchor` requires a gradient in place of the part's parameters if no input does.
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<Second>& second,
                               std::vector<std::string>* losses, const std::optional<torch::Tensor>& anchor,
                               at::TensorList inputs) {
    context->saved_data["second"] = c10::IValue::make_capsule(second);
    context->save_for_backward(inputs.vec());
    if (anchor) return std::move(second->outputs);
    return second->first_forward(inputs.vec(), *losses);  // no graph is recorded within a Function
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto capsule = context->saved_data["second"].toCapsule();
    const auto& second = static_cast<const Second&>(*capsule);
    variable_list inputs;
    for (const auto& saved : context->get_saved_variables()) {
      inputs.push_back(saved.detach());
      inputs.back().requires_grad_(saved.requires_grad());
    }
    const variable_list outputs = second.second_forward(inputs);
    variable_list roots, seeds;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      seeds.push_back(gradients[i]);
    }
    if (!roots.empty()) torch::autograd::backward(roots, seeds);
    variable_list results(3);  // none for `second`, `losses` and `anchor`
    for (const auto& input : inputs) results.push_back(input.requires_grad() ? input.grad() : torch::Tensor());
    return results;
  }
};

bool any_requires_grad(const variable_list& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const torch::Tensor& tensor) { return tensor.requires_grad(); });
}

// `part` as a function of its defined inputs only, because autograd accepts no undefined ones.
RecomputedAll of_defined(const RecomputedAll& part, const variable_list& inputs) {
  std::vector<bool> is_defined;
  for (const auto& input : inputs) is_defined.push_back(input.defined());
  return [part, is_defined](const variable_list& defined) {
    variable_list all(is_defined.size());
    auto next = defined.begin();
    for (std::size_t i = 0; i < all.size(); ++i)
      if (is_defined[i]) all[i] = *next++;
    return part(all);
  };
}

}  // namespace

std::vector<torch::Tensor> recompute_all(const RecomputedAll& part, const std::vector<torch::Tensor>& inputs) {
  if (!torch::GradMode::is_enabled()) return part(inputs);
  variable_list defined;
  std::copy_if(inputs.begin(), inputs.end(), std::back_inserter(defined),
               [](const torch::Tensor& input) { return input.defined(); });
  auto second = c10::make_intrusive<Second>();
  second->part = of_defined(part, inputs);
  second->forward = forward_now();
  second->forward.random = random_context();
  second->forward.routing = std::make_shared<RepeatedRouting>(second->forward.routing);
  std::vector<std::string> losses;
  std::optional<torch::Tensor> anchor;
  variable_list outputs;
  bool is_trained = any_requires_grad(defined);
  if (!is_trained) {  // the part's parameters may be trained, which only its outputs show
    outputs = second->first_forward(defined, losses);
    is_trained = any_requires_grad(outputs);
    if (is_trained) anchor = torch::empty({0}).requires_grad_();
    for (const auto& output : outputs) second->outputs.push_back(output.detach());
  }
  if (is_trained) outputs = Recompute::apply(second, &losses, anchor, at::TensorList(defined));
  const std::size_t own = outputs.size() - losses.size();
  for (std::size_t i = 0; i < losses.size(); ++i) add_full_loss(losses[i], outputs[own + i]);
  outputs.resize(own);
  return outputs;
}

torch::Tensor recompute(const Recomputed& part, const std::vector<torch::Tensor>& inputs) {
  return recompute_all([part](const variable_list& given) { return variable_list{part(given)}; }, inputs).front();
}

}  // namespace gantry::nn

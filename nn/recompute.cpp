#include "gantry/nn/recompute.h"

#include <memory>

#include "gantry/nn/weight_gradient.h"
#include "gantry/tensors/random_context.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

thread_local bool attention_alone = false;

// What the second forward needs, held by the graph until its backward.
struct Second : torch::CustomClassHolder {
  Recomputed part;
  RandomContext random;
  WeightGradientStore* store = nullptr;
  bool attention_alone = false;
};

struct Recompute : torch::autograd::Function<Recompute> {
  // `first` makes the graph's inputs known to autograd; a list of tensors would not.
  static Variable forward(AutogradContext* context, const c10::intrusive_ptr<Second>& second,
                          const std::optional<torch::Tensor>& first, const std::optional<torch::Tensor>& middle,
                          const std::optional<torch::Tensor>& last) {
    context->saved_data["second"] = c10::IValue::make_capsule(second);
    variable_list inputs;
    for (const auto& input : {first, middle, last})
      if (input) inputs.push_back(*input);
    context->save_for_backward(inputs);
    return second->part(inputs);  // forwards of functions record nothing
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto capsule = context->saved_data["second"].toCapsule();
    auto& second = static_cast<Second&>(*capsule);
    variable_list inputs;
    for (const auto& saved : context->get_saved_variables()) {
      torch::Tensor leaf = saved.detach();
      leaf.requires_grad_(saved.requires_grad());
      inputs.push_back(leaf);
    }
    torch::Tensor output;
    {
      const torch::AutoGradMode record(true);
      const RandomContextGuard random(second.random);
      const WeightGradientStoreGuard store(second.store);
      const RecomputeAttentionGuard attention(second.attention_alone);
      output = second.part(inputs);
    }
    torch::autograd::backward({output}, {gradients[0]});
    variable_list results(4);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].requires_grad()) results[1 + i] = inputs[i].grad();
    return results;
  }
};

}  // namespace

bool recomputes_attention() { return attention_alone; }
RecomputeAttentionGuard::RecomputeAttentionGuard(bool on) : former_(attention_alone) { attention_alone = on; }
RecomputeAttentionGuard::~RecomputeAttentionGuard() { attention_alone = former_; }

torch::Tensor recompute(const Recomputed& part, const std::vector<torch::Tensor>& inputs) {
  if (!torch::GradMode::is_enabled()) return part(inputs);
  auto second = c10::make_intrusive<Second>();
  second->part = part;
  second->random = random_context();
  second->store = weight_gradient_store();
  std::optional<torch::Tensor> each[3];
  for (std::size_t i = 0; i < inputs.size() && i < 3; ++i) each[i] = inputs[i];
  return Recompute::apply(second, each[0], each[1], each[2]);
}

}  // namespace gantry::nn

#include "gantry/models/router_loss.h"

#include "gantry/nn/autograd_collectives.h"
#include "gantry/nn/router_balance.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

ProcessGroup* sequence_group() {
  const auto& stage = forward_now().stage;
  return stage ? stage->sequence_group() : nullptr;
}

}  // namespace

TensorDict with_router_sums(const TensorDict& state, const nn::Routing& routing, const torch::Tensor& keep) {
  const std::int64_t experts = routing.logits.size(-1);
  torch::Tensor probabilities = routing.logits.softmax(-1).reshape({-1, experts});
  torch::Tensor choices = torch::zeros_like(routing.logits, torch::TensorOptions().requires_grad(false))
                              .scatter(-1, routing.ids, 1)
                              .reshape({-1, experts});
  if (keep.defined()) {
    const torch::Tensor counted =
        nn::part_of_sequence(keep, sequence_group()).reshape({-1, 1}).to(probabilities.scalar_type());
    probabilities = probabilities * counted;
    choices = choices * counted;
  }
  const torch::Tensor choices_before = state.get(kRouterChoices), before = state.get(kRouterProbabilities);
  choices = choices.detach().sum(0);
  probabilities = probabilities.sum(0);
  return {{kRouterChoices, choices_before.defined() ? choices_before + choices : choices},
          {kRouterProbabilities, before.defined() ? before + probabilities : probabilities}};
}

void add_router_loss(const StageContext& stage, const TensorDict& state, double coefficient, std::int64_t layers) {
  const torch::Tensor labels = stage.batch().get("labels"), keep = stage.tokens().keep;
  if (!labels.defined() || !state.contains(kRouterChoices)) return;
  torch::Tensor choices = state.at(kRouterChoices);
  if (ProcessGroup* group = stage.sequence_group()) choices = reduce_from_group(choices, *group);
  const torch::Tensor joint = (choices * state.at(kRouterProbabilities)).sum() * static_cast<double>(choices.size(0));
  const torch::Tensor counted =
      (keep.defined() ? keep.sum() : torch::full({}, labels.numel(), labels.options())) * layers;
  const torch::Tensor wide = counted.to(joint.scalar_type());
  gantry::add_loss("router_loss", joint / (wide * wide) * (labels != -100).sum() * coefficient, Shard{1});
}

}  // namespace gantry::models

#include "gantry/models/decoder_experts.h"

#include "gantry/models/register_at.h"
#include "gantry/nn/activation.h"
#include "gantry/nn/expert_exchange.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

nn::RouterOptions::Scores scores_of(ExpertsSpec::Scores scores) {
  using To = nn::RouterOptions::Scores;
  if (scores == ExpertsSpec::Scores::kSigmoid) return To::kSigmoid;
  return scores == ExpertsSpec::Scores::kSoftmax ? To::kSoftmax : To::kSoftmaxOfUsed;
}

}  // namespace

ExpertsOfLayer::ExpertsOfLayer(torch::nn::Module& root, const ExpertsSpec& spec, const DecoderNames& names,
                               std::int64_t hidden)
    : activation_(spec.activation) {
  router_ = register_at(root, names.router,
                        nn::Router(nn::RouterOptions{.hidden = hidden,
                                                     .experts = spec.count,
                                                     .used = spec.used,
                                                     .scores = scores_of(spec.scores),
                                                     .normalised = spec.normalised,
                                                     .added = spec.added,
                                                     .least_sum = spec.least_sum,
                                                     .scale = spec.scale,
                                                     .bias = spec.router_bias,
                                                     .correction = spec.correction,
                                                     .correction_row = spec.correction_row,
                                                     .groups = spec.groups,
                                                     .used_groups = spec.used_groups,
                                                     .group_scores = spec.group_scores}));
  experts_ = register_at(root, names.experts,
                         nn::Experts(nn::ExpertsOptions{.shape = expert_shape(spec, hidden),
                                                        .activation = spec.activation,
                                                        .limit = spec.limit,
                                                        .weights_input = spec.weights_input}));
  if (spec.shared_width == 0) return;
  if (spec.shared_fused) {
    gate_up_ = linear_at(root, names.shared + ".gate_up_proj", hidden, 2 * spec.shared_width, false);
  } else {
    if (spec.gated) gate_ = linear_at(root, names.shared + ".gate_proj", hidden, spec.shared_width, false);
    up_ = linear_at(root, names.shared + ".up_proj", hidden, spec.shared_width, false);
  }
  down_ = linear_at(root, names.shared + ".down_proj", spec.shared_width, hidden, false);
  if (spec.shared_gate) shared_gate_ = linear_at(root, names.shared_gate, hidden, 1, false);
}

torch::Tensor ExpertsOfLayer::shared_wide(const torch::Tensor& input) {
  if (!gate_up_ && !gate_) return nn::activate(up_(input), activation_);
  if (gate_up_) return nn::gated_halves(gate_up_(input), activation_);
  const auto parts = nn::together(input, {gate_, up_});
  return nn::gated(parts[0], parts[1], activation_);
}

torch::Tensor ExpertsOfLayer::shared(const torch::Tensor& input, const torch::Tensor& wide) {
  const torch::Tensor made = down_(wide);
  return shared_gate_ ? made * torch::sigmoid(shared_gate_(input)) : made;
}

ExpertsOfLayer::Output ExpertsOfLayer::forward(const torch::Tensor& input) {
  const nn::Routing routing = router_(input);
  if (!travels()) {
    const torch::Tensor routed = experts_(input, routing);
    return {down_ ? routed + shared(input, shared_wide(input)) : routed, routing};
  }
  Dispatch dispatched;
  TensorDict state = dispatch(input, routing, dispatched);
  for (const auto& [name, tensor] : compute(state, *dispatched)) state.set(name, tensor);
  return {combine(state, *dispatched), routing};
}

TensorDict ExpertsOfLayer::dispatch(const torch::Tensor& input, const nn::Routing& routing, Dispatch& dispatched) {
  dispatched = experts_->dispatch(input, routing);
  TensorDict made{{"rows", dispatched->rows.ticket()}, {"weights", experts_->output_weights(routing.weights)}};
  if (down_) made.set("wide", shared_wide(input));
  if (shared_gate_) made.set("normed", input);
  return made;
}

TensorDict ExpertsOfLayer::compute(const TensorDict& state, nn::DispatchedExperts& dispatched) {
  dispatched.rows.set_ticket(state.at("rows"));
  experts_->compute(dispatched);
  TensorDict made{{"rows", dispatched.rows.ticket()}};
  if (!down_) return made;
  made.set("beside", shared(state.get("normed"), state.at("wide")));
  made.set("wide", {});
  made.set("normed", {});
  return made;
}

torch::Tensor ExpertsOfLayer::combine(const TensorDict& state, nn::DispatchedExperts& dispatched) {
  dispatched.rows.set_ticket(state.at("rows"));
  const torch::Tensor routed = experts_->combine(dispatched, state.at("weights"));
  return down_ ? routed + state.at("beside") : routed;
}

void ExpertsOfLayer::add_parts(LayerParts& parts, const Before& before, const After& after) {
  const auto dispatched = std::make_shared<Dispatch>();
  const auto add = [&parts](const char* name, LayerPart::Run run) { parts.emplace_back(name, std::move(run)); };
  add("dispatch", [this, dispatched, before](const TensorDict& state) {
    const torch::Tensor input = before(state.at("hidden"));
    return dispatch(input, router_(input), *dispatched);
  });
  add("experts", [this, dispatched](const TensorDict& state) { return compute(state, **dispatched); });
  add("combine", [this, dispatched, after](const TensorDict& state) -> TensorDict {
    return {{"hidden", after(state.at("hidden"), combine(state, **dispatched))},
            {"rows", {}},
            {"weights", {}},
            {"beside", {}}};
  });
}

}  // namespace gantry::models

#include "gantry/models/decoder_experts.h"

#include <torch/torch.h>

#include "gantry/models/register_at.h"
#include "gantry/nn/activation.h"
#include "gantry/nn/expert_exchange.h"

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
                                                     .scale = spec.scale,
                                                     .bias = spec.router_bias,
                                                     .correction = spec.correction,
                                                     .groups = spec.groups,
                                                     .used_groups = spec.used_groups}));
  experts_ =
      register_at(root, names.experts,
                  nn::Experts(nn::ExpertsOptions{.shape = {spec.count, hidden, spec.width, spec.bias, spec.interleaved},
                                                 .activation = spec.activation,
                                                 .limit = spec.limit}));
  if (spec.shared_width == 0) return;
  gate_ = linear_at(root, names.shared + ".gate_proj", hidden, spec.shared_width, false);
  up_ = linear_at(root, names.shared + ".up_proj", hidden, spec.shared_width, false);
  down_ = linear_at(root, names.shared + ".down_proj", spec.shared_width, hidden, false);
  if (spec.shared_gate) shared_gate_ = linear_at(root, names.shared_gate, hidden, 1, false);
}

torch::Tensor ExpertsOfLayer::shared_wide(const torch::Tensor& input) {
  const auto parts = nn::together(input, {gate_, up_});
  return nn::activate(parts[0], activation_) * parts[1];
}

torch::Tensor ExpertsOfLayer::shared(const torch::Tensor& input, const torch::Tensor& wide) {
  const torch::Tensor made = down_(wide);
  return shared_gate_ ? made * torch::sigmoid(shared_gate_(input)) : made;
}

ExpertsOfLayer::Output ExpertsOfLayer::forward(const torch::Tensor& input) {
  const nn::Routing routing = router_(input);
  if (!down_) return {experts_(input, routing), routing};
  if (!experts_->travels()) return {experts_(input, routing) + shared(input, shared_wide(input)), routing};
  const auto journey = experts_->depart(input, routing);
  const torch::Tensor wide = shared_wide(input);
  experts_->turn(*journey);
  const torch::Tensor beside = shared(input, wide);
  return {experts_->arrive(*journey, routing.weights) + beside, routing};
}

}  // namespace gantry::models

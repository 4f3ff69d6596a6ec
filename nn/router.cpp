#include "gantry/nn/router.h"

#include <fmt/format.h>
#include <limits>

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/core/planted.h"
#include "gantry/nn/autograd_collectives.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/linear_function.h"
#include "gantry/nn/output_observer.h"
#include "gantry/nn/router_balance.h"

namespace gantry::nn {
namespace {

constexpr const char* kCorrection = "e_score_correction_bias";

void check(const RouterOptions& options) {
  const std::int64_t in_group = options.groups > 0 ? options.experts / options.groups : 0;
  const std::int64_t choice = in_group * options.used_groups;
  const auto refuse = [](std::string what, std::string expected) {
    throw ConfigError({"Router", std::move(what), std::move(expected), ""});
  };
  if (options.groups < 1 || options.experts % options.groups != 0)
    refuse(fmt::format("{} groups of {} experts", options.groups, options.experts), "groups of equal size");
  if (options.groups > 1 && in_group < 2)
    refuse(fmt::format("{} groups of {} experts", options.groups, options.experts), "two experts a group, or more");
  if (options.used_groups < 1 || options.used_groups > options.groups)
    refuse(fmt::format("{} of {} groups are used", options.used_groups, options.groups), "from 1 to all of them");
  if (options.used < 1 || options.used > choice)
    refuse(fmt::format("a token uses {} of {} experts", options.used, choice), "from 1 to all of them");
}

}  // namespace

RouterImpl::RouterImpl(const RouterOptions& given) : options(given) {
  check(options);
  weight = register_parameter("weight", torch::empty({options.experts, options.hidden}));
  torch::nn::init::normal_(weight, 0, 0.02);
  if (options.bias) {
    bias = register_parameter("bias", torch::empty({options.experts}));
    torch::nn::init::zeros_(bias);
  }
  if (options.correction) {
    correction = register_parameter(kCorrection, torch::empty({options.experts}), /*requires_grad=*/false);
    torch::nn::init::zeros_(correction);
  }
}

Placements RouterImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  if (std::holds_alternative<Whole>(style)) return {};
  const auto* sequence = std::get_if<SequenceParallel>(&style);
  if (!sequence) refuse_style("a Router", style, "SequenceParallel{} or Whole{}");
  if (sequence->gradient_sum == GradientSum::kInBackward && axes.ranks() > 1) summed_over_ = &axes.group();
  std::map<std::string, Shape> shapes{{"weight", {options.experts, options.hidden}}};
  if (options.bias) shapes["bias"] = {options.experts};
  return split_parameters(shapes, style, axes);
}

torch::Tensor RouterImpl::used_parameter(const torch::Tensor& parameter) const {
  return summed_over_ && parameter.defined() ? copy_to_group(parameter, *summed_over_) : parameter;
}

// Its steps are small beside what lower precisions tell apart.
bool RouterImpl::keeps_float32(const std::string& parameter) const { return parameter == kCorrection; }

torch::Tensor RouterImpl::largest(const torch::Tensor& scores, std::int64_t count) {
  return std::get<1>(scores.sort(/*stable=*/true, /*dim=*/-1, /*descending=*/true)).narrow(-1, 0, count).contiguous();
}

torch::Tensor RouterImpl::change_of_correction(const torch::Tensor& counts, double rate) const {
  const torch::NoGradGuard no_grad;
  const torch::Tensor missing = counts.sum() - counts * options.experts;  // in integers: no rounding decides
  return torch::sign(missing).to(correction.scalar_type()) * rate;
}

// The experts of the tokens, by scores [..., experts].
torch::Tensor RouterImpl::chosen(const torch::Tensor& scores) const {
  const torch::NoGradGuard no_grad;
  torch::Tensor by = scores;
  if (correction.defined()) by = by + correction.to(by.scalar_type());
  if (options.used_groups < options.groups) {
    const torch::Tensor groups = by.unflatten(-1, {options.groups, options.experts / options.groups});
    const torch::Tensor best = std::get<0>(groups.topk(2, -1)).sum(-1);
    const torch::Tensor used =
        torch::zeros_like(best, torch::kBool).scatter(-1, largest(best, options.used_groups), true);
    by = groups.masked_fill(~used.unsqueeze(-1), -std::numeric_limits<double>::infinity()).flatten(-2);
  }
  return largest(by, options.used);
}

Routing RouterImpl::forward(const torch::Tensor& tokens) {
  const torch::ScalarType wide = at::promote_types(tokens.scalar_type(), torch::kFloat32);
  torch::Tensor beside = used_parameter(bias);
  if (beside.defined()) beside = beside.to(wide);
  Routing routing;
  routing.logits = linear(tokens.to(wide), {{used_parameter(weight).to(wide), beside}}, {}).front();
  routing.logits = observed(*this, std::move(routing.logits));
  torch::Tensor scores = routing.logits;
  if (options.scores == RouterOptions::Scores::kSoftmax) scores = scores.softmax(-1);
  if (options.scores == RouterOptions::Scores::kSigmoid) scores = scores.sigmoid();
  routing.ids = chosen(scores);
  if (const auto& repeated = forward_now().routing; repeated) routing.ids = repeated->ids(routing.ids);
  const bool corrected = planted("weights-of-corrected-scores") && correction.defined();
  routing.weights = (corrected ? scores + correction : scores).gather(-1, routing.ids);
  if (options.scores == RouterOptions::Scores::kSoftmaxOfUsed) routing.weights = routing.weights.softmax(-1);
  if (options.normalised)
    routing.weights = routing.weights / (routing.weights.sum(-1, /*keepdim=*/true) + options.added);
  if (options.scale != 1) routing.weights = routing.weights * options.scale;
  balance(*this, scores, routing);
  return routing;
}

}  // namespace gantry::nn

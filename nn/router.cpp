#include "gantry/nn/router.h"

#include <fmt/format.h>
#include <limits>

#include "gantry/core/error.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/nn/autograd_collectives.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/linear_function.h"
#include "gantry/nn/output_observer.h"
#include "gantry/nn/router_balance.h"
#include "gantry/tensors/libtorch.h"

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
    refuse(fmt::format("there are {} groups of {} experts", options.groups, options.experts),
           "groups of the same size");
  if (options.group_scores < 1 || (options.groups > 1 && in_group < options.group_scores))
    refuse(fmt::format("there are {} groups of {} experts", options.groups, options.experts),
           fmt::format("at least {} experts per group", options.group_scores));
  if (options.used_groups < 1 || options.used_groups > options.groups)
    refuse(fmt::format("{} of {} groups are used", options.used_groups, options.groups), "from 1 to all");
  if (options.used < 1 || options.used > choice)
    refuse(fmt::format("a token uses {} of {} experts", options.used, choice), "from 1 to all");
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
    const Shape shape = options.correction_row ? Shape{1, options.experts} : Shape{options.experts};
    correction = register_parameter(kCorrection, torch::empty(shape), /*requires_grad=*/false);
    torch::nn::init::zeros_(correction);
  }
}

void RouterImpl::add_adapter(const AdapterOptions& adapter) {
  if (has_adapter() || is_sharded_)
    throw UsageError({"adapter",
                      has_adapter() ? "the router already has an adapter" : "the router has already been sharded",
                      "one adapter, added before the model is boosted", ""});
  const DeferredInit deferred;
  lora_a = register_parameter(kAdapterA, torch::empty({adapter.rank, options.hidden}, weight.options()));
  lora_b = register_parameter(kAdapterB, torch::empty({options.experts, adapter.rank}, weight.options()));
  if (adapter.gaussian)
    torch::nn::init::normal_(lora_a, 0, 1 / static_cast<double>(adapter.rank));
  else
    torch::nn::init::kaiming_uniform_(lora_a, std::sqrt(5.0));
  torch::nn::init::zeros_(lora_b);
  adapter_scale_ = adapter.scale;
}

LayerAdapterPlaces RouterImpl::adapter_places(const AdapterOptions& adapter, const std::string&) const {
  return {place_of_factor(kAdapterA, {adapter.rank, options.hidden}, {}),
          place_of_factor(kAdapterB, {options.experts, adapter.rank}, {}),
          {}};
}

void RouterImpl::use_adapter(const LayerAdapter& adapter, const std::string&) {
  lora_a = adapter.a;
  lora_b = adapter.b;
  adapter_scale_ = adapter.scale;
}

Placements RouterImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  is_sharded_ = true;
  if (std::holds_alternative<FullSequence>(style)) return {};
  const auto* sequence = std::get_if<SequenceParallel>(&style);
  if (!sequence) refuse_style("a Router", style, "SequenceParallel{} or FullSequence{}");
  if (sequence->gradient_sum == GradientSum::kInBackward && axes.ranks() > 1) summed_over_ = &axes.group();
  std::map<std::string, Shape> shapes{{"weight", {options.experts, options.hidden}}};
  if (options.bias) shapes["bias"] = {options.experts};
  if (has_adapter()) {
    shapes[kAdapterA] = {1, options.hidden};
    shapes[kAdapterB] = {options.experts, 1};
  }
  return split_parameters(shapes, style, axes);
}

torch::Tensor RouterImpl::used_parameter(const torch::Tensor& parameter) const {
  return summed_over_ && parameter.defined() ? copy_to_group(parameter, *summed_over_) : parameter;
}

// The update steps of this bias are small compared with the resolution of lower precisions.
bool RouterImpl::keeps_float32(const std::string& parameter) const { return parameter == kCorrection; }

torch::Tensor RouterImpl::largest(const torch::Tensor& scores, std::int64_t count) {
  return std::get<1>(scores.sort(/*stable=*/true, /*dim=*/-1, /*descending=*/true)).narrow(-1, 0, count).contiguous();
}

torch::Tensor RouterImpl::change_of_correction(const torch::Tensor& counts, double rate) const {
  const torch::NoGradGuard no_grad;
  const torch::Tensor missing = counts.sum() - counts * options.experts;  // integers are not rounded
  return torch::sign(missing).to(correction.scalar_type()) * rate;
}

// Chooses the experts of the tokens by scores [..., experts].
torch::Tensor RouterImpl::chosen(const torch::Tensor& scores) const {
  const torch::NoGradGuard no_grad;
  torch::Tensor by = scores;
  if (correction.defined()) by = by + correction.view({-1}).to(by.scalar_type());
  if (options.used_groups < options.groups) {
    const torch::Tensor groups = by.unflatten(-1, {options.groups, options.experts / options.groups});
    const torch::Tensor best = std::get<0>(groups.topk(options.group_scores, -1)).sum(-1);
    const torch::Tensor used =
        torch::zeros_like(best, torch::kBool).scatter(-1, largest(best, options.used_groups), true);
    by = groups.masked_fill(~used.unsqueeze(-1), -std::numeric_limits<double>::infinity()).flatten(-2);
  }
  return largest(by, options.used);
}

torch::Tensor RouterImpl::logits_of(const torch::Tensor& tokens) const {
  const torch::ScalarType wide = at::promote_types(tokens.scalar_type(), torch::kFloat32);
  const auto used = [&](const torch::Tensor& parameter) {
    const torch::Tensor made = used_parameter(parameter);
    return made.defined() ? made.to(wide) : made;
  };
  std::vector<LinearWeight> readers = {{used(weight), used(bias)}};
  if (has_adapter()) readers.push_back({used(lora_a), {}});
  const auto made = linear(tokens.to(wide), readers, {});
  if (!has_adapter()) return made.front();
  return made.front() + linear(made.back() * adapter_scale_, {{used(lora_b), {}}}, {}).front();
}

Routing RouterImpl::forward(const torch::Tensor& tokens) {
  Routing routing;
  routing.logits = observed(*this, logits_of(tokens));
  torch::Tensor scores = routing.logits;
  if (options.scores == RouterOptions::Scores::kSoftmax) scores = scores.softmax(-1);
  if (options.scores == RouterOptions::Scores::kSigmoid) scores = scores.sigmoid();
  routing.ids = chosen(scores);
  if (const auto& repeated = forward_now().routing; repeated) routing.ids = repeated->ids(routing.ids);
  routing.weights = scores.gather(-1, routing.ids);
  if (options.scores == RouterOptions::Scores::kSoftmaxOfUsed) routing.weights = routing.weights.softmax(-1);
  if (options.normalised)
    routing.weights =
        routing.weights / (routing.weights.sum(-1, /*keepdim=*/true) + options.added).clamp_min(options.least_sum);
  if (options.scale != 1) routing.weights = routing.weights * options.scale;
  balance(*this, scores, routing);
  return routing;
}

}  // namespace gantry::nn

#include "gantry/nn/router_balance.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

// Whether each of the router's tokens counts (is not padding): [..., 1], like its logits; undefined: all
// count.
torch::Tensor counted_tokens(const torch::Tensor& logits) {
  const auto& stage = forward_now().stage;
  if (!stage) return {};
  const torch::Tensor keep = part_of_sequence(stage->tokens().keep, stage->sequence_group());
  if (!keep.defined()) return {};
  if (keep.numel() != logits.numel() / logits.size(-1))
    throw UsageError({"Router",
                      fmt::format("the router gets {} tokens, but the mask of the batch has {}",
                                  logits.numel() / logits.size(-1), keep.numel()),
                      "all tokens of the batch in their order, because the mask selects those that count", ""});
  std::vector<std::int64_t> shape = logits.sizes().vec();
  shape.back() = 1;
  return keep.reshape(shape);
}

torch::Tensor over_counted(const torch::Tensor& values, const torch::Tensor& counted) {
  return counted.defined() ? values * counted.to(values.scalar_type()) : values;
}

// 1 where a token has chosen an expert: [..., experts].
torch::Tensor chosen_of(const torch::Tensor& ids, const torch::Tensor& counted, const torch::Tensor& like) {
  const torch::Tensor none = torch::zeros(like.sizes(), like.options().requires_grad(false));
  return over_counted(none.scatter(-1, ids, 1), counted);
}

// The sum over all ranks that have parts of the tokens' sequences.
torch::Tensor summed_over_sequence(torch::Tensor counts) {
  const auto& stage = forward_now().stage;
  if (!stage) return counts;
  counts = counts.contiguous();
  if (ProcessGroup* group = stage->sequence_group()) group->all_reduce(counts).wait();
  if (const auto& part = stage->sequence()) part->group->all_reduce(counts).wait();
  return counts;
}

// Experts / (used tokens^2) * sum over e of (choices of e) * (this rank's probabilities of e), for each row.
torch::Tensor unevenness(const torch::Tensor& choices, const torch::Tensor& probabilities, std::int64_t used) {
  const torch::Tensor all = summed_over_sequence(choices.detach());
  const torch::Tensor tokens = (all.sum(-1) / static_cast<double>(used)).clamp_min(1);
  const double factor = static_cast<double>(all.size(-1)) / static_cast<double>(used);
  return (all * probabilities).sum(-1) * factor / tokens.square();
}

void add_balancing_loss(const RouterImpl& router, const RouterBalance& how, const torch::Tensor& scores,
                        const Routing& routing, const torch::Tensor& counted) {
  const RouterOptions& options = router.options;
  torch::Tensor probabilities = scores;
  if (options.scores == RouterOptions::Scores::kSoftmaxOfUsed) probabilities = routing.logits.softmax(-1);
  if (options.scores == RouterOptions::Scores::kSigmoid)
    probabilities = scores / (scores.sum(-1, /*keepdim=*/true) + 1e-20);
  // The experts that the scores alone would choose.
  const bool is_plain = !router.correction.defined() && options.used_groups == options.groups;
  const torch::Tensor ids = is_plain ? routing.ids : RouterImpl::largest(scores.detach(), options.used);
  torch::Tensor choices = chosen_of(ids, counted, routing.logits);
  probabilities = over_counted(probabilities, counted);
  double parts = how.microbatches;
  if (how.loss == RouterBalance::Loss::kSequence) {
    if (routing.logits.dim() != 3)
      throw UsageError(
          {"experts.balance",
           fmt::format("'sequence' needs the sequences of the tokens, but the router's input has {} dimensions",
                       routing.logits.dim()),
           "[samples, tokens, size]", "pass such an input to the router, or set experts.balance: microbatch"});
    choices = choices.sum(1);
    probabilities = probabilities.sum(1);
    parts = how.sequences;
  } else {
    choices = choices.reshape({-1, options.experts}).sum(0);
    probabilities = probabilities.reshape({-1, options.experts}).sum(0);
  }
  const torch::Tensor loss = unevenness(choices, probabilities, options.used).sum();
  add_loss("router_loss", loss * (how.coefficient * how.labels / parts), Shard{1});
}

}  // namespace

std::shared_ptr<RepeatedRouting> RepeatedRouting::again() const {
  auto copy = std::make_shared<RepeatedRouting>(*this);
  copy->repeats_ = true;
  copy->next_ = 0;
  return copy;
}

torch::Tensor RepeatedRouting::ids(const torch::Tensor& chosen) {
  if (!repeats_) return noted_.emplace_back(around_ ? around_->ids(chosen) : chosen);
  if (next_ == noted_.size())
    throw InternalError({"recomputation", "a router runs more often than in the forward", "the same operations", ""});
  return noted_[next_++];
}

torch::Tensor part_of_sequence(const torch::Tensor& full, ProcessGroup* group) {
  if (!group || !full.defined()) return full;
  const Sizes sizes = partition_sizes(full.size(1), *group);
  std::int64_t begin = 0;
  for (int rank = 0; rank < group->rank(); ++rank) begin += sizes[rank];
  return full.narrow(1, begin, sizes[group->rank()]);
}

void balance(const RouterImpl& router, const torch::Tensor& scores, const Routing& routing) {
  const Forward& known = forward_now();
  const RouterBalance* how = known.balance;
  if (!known.choices && !(how && how->is_on())) return;
  const torch::Tensor counted = counted_tokens(routing.logits);
  if (known.choices) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor here =
        chosen_of(routing.ids, counted, routing.logits).reshape({-1, router.options.experts}).sum(0).to(torch::kInt64);
    torch::Tensor& all = (*known.choices)[&router];
    all = all.defined() ? all + here : here;
  }
  if (!how) return;
  if (how->loss != RouterBalance::Loss::kNone) add_balancing_loss(router, *how, scores, routing, counted);
  if (how->z_coefficient > 0) {
    const torch::Tensor squares = over_counted(routing.logits.logsumexp(-1, /*keepdim=*/true).square(), counted);
    add_loss("z_loss", squares.sum() * (how->z_coefficient * how->labels / how->tokens), Shard{1});
  }
}

}  // namespace gantry::nn

#include "gantry/nn/forward.h"

#include <utility>

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/nn/autograd_collectives.h"
#include "gantry/nn/stage_context.h"

namespace gantry {
namespace {

thread_local const Forward* innermost = nullptr;
// Draws outside of any forward. A plain loop has no value that could hold the count.
thread_local std::uint64_t draws_outside = 0;

}  // namespace

ForwardScope::ForwardScope(Forward forward) : former_(innermost), forward_(std::move(forward)) {
  innermost = &forward_;
}
ForwardScope::~ForwardScope() { innermost = former_; }

const Forward& forward_now() {
  static const Forward kNothing;
  return innermost ? *innermost : kNothing;
}

RandomContext random_context() {
  if (const auto& known = forward_now().random) return *known;
  return {.step = draws_outside++};
}

std::int64_t sequence_length() {
  const auto& known = forward_now().random;
  return known ? known->sequence_length : 0;
}

void add_loss(const std::string& name, const torch::Tensor& loss, const std::optional<Layout>& of) {
  if (of && std::holds_alternative<Partial>(*of))
    throw UsageError({"add_loss", "was given a loss of Partial", "Shard{1} or Replicate{}",
                      "sum it over the ranks (gantry::reduce_from_group) before it is added"});
  const auto& stage = forward_now().stage;
  ProcessGroup* group = stage ? stage->sequence_group() : nullptr;
  if (group && !of)
    throw UsageError({"add_loss", "activations are sequence shards, and it is not said what the loss goes over",
                      "add_loss(name, loss, Shard{1}) for a sum over this rank's part of the sequence, add_loss(name, "
                      "loss, Replicate{}) for one over all of it",
                      "say which; without sequence parallelism it changes nothing"});
  if (stage && stage->sequence() && !(of && std::holds_alternative<Shard>(*of)))
    throw ConfigError({"parallel.context", "the model adds the loss '" + name + "'",
                       "1 where losses are added that may go over whole sequences",
                       "say that it is a sum over this rank's tokens: add_loss(name, loss, Shard{1}); or take the key "
                       "out"});
  add_whole_loss(name, group && std::holds_alternative<Shard>(*of) ? reduce_from_group(loss, *group) : loss);
}

void add_whole_loss(const std::string& name, const torch::Tensor& loss) {
  if (name.empty() || !loss.defined() || loss.dim() != 0)
    throw UsageError({"add_loss", "was given '" + name + "' and " + describe(loss), "a name and a scalar",
                      "sum the loss over its tokens"});
  if (TensorDict* losses = forward_now().losses) {
    const torch::Tensor sum = losses->get(name);
    losses->set(name, sum.defined() ? sum + loss : loss);
  } else if (torch::GradMode::is_enabled() && loss.requires_grad()) {
    throw UsageError({"add_loss", "nobody takes the loss '" + name + "' of a forward that is trained", "",
                      "run the model by execute_pipeline; or open gantry::ForwardScope({.losses = &losses}) around its "
                      "forward, and add them to the loss"});
  }
}

}  // namespace gantry

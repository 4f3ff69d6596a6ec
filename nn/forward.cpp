#include "gantry/nn/forward.h"

#include <utility>

#include "gantry/core/error.h"
#include "gantry/nn/autograd_collectives.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/libtorch.h"

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
    throw UsageError({"add_loss", "the layout of the loss is Partial", "Shard{1} or Replicate{}",
                      "all-reduce the loss over the ranks (gantry::reduce_from_group) before you add it"});
  const auto& stage = forward_now().stage;
  ProcessGroup* group = stage ? stage->sequence_group() : nullptr;
  if (group && !of)
    throw UsageError({"add_loss", "the activations are sequence shards, but the layout of the loss was not passed",
                      "add_loss(name, loss, Shard{1}) for a sum over this rank's shard of the sequence, or "
                      "add_loss(name, loss, Replicate{}) for a sum over the full sequence",
                      "pass the layout; it has no effect without sequence parallelism"});
  if (stage && stage->sequence() && !(of && std::holds_alternative<Shard>(*of)))
    throw ConfigError({"parallel.context",
                       "the model adds the loss '" + name + "', which may be a sum over full sequences",
                       "a sum over this rank's tokens",
                       "call add_loss(name, loss, Shard{1}) if it is one, or remove parallel.context"});
  add_full_loss(name, group && std::holds_alternative<Shard>(*of) ? reduce_from_group(loss, *group) : loss);
}

void add_full_loss(const std::string& name, const torch::Tensor& loss) {
  if (name.empty() || !loss.defined() || loss.dim() != 0)
    throw UsageError({"add_loss", "the arguments are '" + name + "' and " + describe(loss), "a name and a scalar",
                      "sum the loss over its tokens"});
  if (TensorDict* losses = forward_now().losses) {
    const torch::Tensor sum = losses->get(name);
    losses->set(name, sum.defined() ? sum + loss : loss);
  } else if (torch::GradMode::is_enabled() && loss.requires_grad()) {
    throw UsageError(
        {"add_loss",
         "the loss '" + name + "' would be lost in a forward with gradients, because no ForwardScope is open", "",
         "run the model with execute_pipeline; or open gantry::ForwardScope({.losses = &losses}) around its forward, "
         "and add the collected losses to the loss"});
  }
}

}  // namespace gantry

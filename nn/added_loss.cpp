#include "gantry/nn/added_loss.h"

#include <algorithm>
#include <vector>

#include "gantry/core/axis.h"
#include "gantry/core/error.h"
#include "gantry/core/placement.h"
#include "gantry/nn/autograd_collectives.h"
#include "gantry/nn/output_observer.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

void observe_loss(const std::string& name) {
  const Forward& known = forward_now();
  if (!known.observer) return;
  const ForwardReport nowhere;
  const ForwardReport& place = known.report ? *known.report : nowhere;
  known.observer->added_loss(name, place.layer, place.part);
}

// The elements of a tensor-parallel shard that no lower rank holds.
torch::Tensor owned_part(const torch::Tensor& held, const ShardSpec& shard, int rank) {
  if (!shard.overlaps()) return held;
  std::vector<torch::Tensor> parts;
  const auto ranges = shard.ranges(rank), owned = shard.owned(rank);
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const std::int64_t from = begin + owned[i].begin - ranges[i].begin;
    parts.push_back(held.narrow(shard.dim, owned[i].size() > 0 ? from : begin, owned[i].size()));
    begin += ranges[i].size();
  }
  return torch::cat(parts, shard.dim);
}

void refuse_unsupported_placement(const std::string& name, const Placement& placement) {
  if (placement.view == axis::View::kExpert)
    throw ConfigError(
        {"parallel.expert",
         "the model adds the loss '" + name + "' of " + placement.name + ", whose experts are distributed",
         "a loss of parameters that all replicas hold", "remove parallel.expert"});
  if (placement.along(axis::kPipeline).sharded())
    throw ConfigError({"parallel.vocabulary",
                       "the value is pipeline, but the model adds the loss '" + name + "' of " + placement.name,
                       "embedding and head in the first and the last stage", "remove parallel.vocabulary"});
}

}  // namespace

void add_loss(const std::string& name, const torch::Tensor& loss, const std::optional<Layout>& of) {
  const auto& stage = forward_now().stage;
  ProcessGroup* sequence = stage ? stage->sequence_group() : nullptr;
  if (sequence && !of)
    throw UsageError({"add_loss", "the activations are sequence shards, but the layout of the loss was not passed",
                      "Shard{1} for a sum over this rank's shard of the sequence, Replicate{} for one over the full "
                      "sequence, or Partial{} for one over this rank's heads or features",
                      "pass the layout; see gantry/nn/added_loss.h"});
  if (stage && stage->sequence() && (!of || std::holds_alternative<Replicate>(*of)))
    throw ConfigError({"parallel.context",
                       "the model adds the loss '" + name + "', which may be a sum over full sequences",
                       "a sum over this rank's tokens",
                       "call add_loss(name, loss, Shard{1}) if it is one, or remove parallel.context"});
  observe_loss(name);
  ProcessGroup* group = nullptr;
  if (of && std::holds_alternative<Shard>(*of)) group = sequence;
  if (of && std::holds_alternative<Partial>(*of) && stage) group = stage->tensor_group();
  add_full_loss(name, group ? reduce_from_group(loss, *group) : loss);
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

void add_parameter_loss(const std::string& name, const torch::Tensor& parameter,
                        const std::function<torch::Tensor(const torch::Tensor& part)>& term) {
  const Forward& known = forward_now();
  if (!known.step_share && !torch::GradMode::is_enabled()) return;  // only outputs are needed
  if (!known.step_share)
    throw UsageError({"add_parameter_loss",
                      "the number of tokens or samples of the step is unknown, but the loss '" + name + "' needs it",
                      "gantry::cross_entropy, a criterion with Criterion::set_count, or ExecuteOptions::step_tokens",
                      "state the counted tokens of the step; with several calls, also ExecuteOptions::step_samples"});
  torch::Tensor part = parameter;
  ProcessGroup* group = nullptr;  // values are summed over it
  if (known.placement_of) {
    const Placement* placement = known.placement_of(parameter);
    if (!placement)
      throw UsageError({"add_parameter_loss", "the tensor of the loss '" + name + "' is not a parameter of the model",
                        "a registered parameter, such as table->weight", "pass the parameter itself, without slicing"});
    refuse_unsupported_placement(name, *placement);
    const ShardSpec& shard = placement->along(axis::kTensor);
    const auto& partial = placement->partial_axes;
    ProcessGroup* tensor = known.stage ? known.stage->tensor_group() : nullptr;
    const bool is_summed = std::find(partial.begin(), partial.end(), axis::kTensor) != partial.end();
    if (tensor && (shard.sharded() || is_summed)) group = tensor;
    if (group && shard.sharded()) part = owned_part(parameter, shard, group->rank());
    // The gradients of the ranks are summed, so only one rank has the gradient of the parameter.
    if (group && !shard.sharded() && group->rank() > 0) part = parameter.flatten().narrow(0, 0, 0);
  }
  observe_loss(name);
  const torch::Tensor value = term(part);
  add_full_loss(name, (group ? reduce_from_group(value, *group) : value) * *known.step_share);
}

}  // namespace gantry

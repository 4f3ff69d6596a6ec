#include "gantry/trainer/evaluator.h"

#include <torch/torch.h>

#include "gantry/core/axis.h"
#include "gantry/data/dataset.h"
#include "gantry/tensors/host_copy.h"

namespace gantry {
namespace {

struct ScoredClasses {
  double right = 0, counted = 0;
};

// Adds those of this replica's samples, whose logits every rank of the last stage has whole.
void score(const TensorDict& outputs, const TensorDict& batch, ScoredClasses& scored) {
  const torch::Tensor logits = outputs.get("logits");
  if (!logits.defined() || logits.size(0) == 0) return;
  const torch::Tensor labels = batch.at("labels").to(logits.device(), torch::kInt64), counted = labels != kNotCounted;
  const torch::Tensor right = (logits.argmax(-1) == labels) & counted;
  const auto numbers = read_back({right.sum(), counted.sum()});
  scored.right += numbers[0];
  scored.counted += numbers[1];
}

// The share over all replicas, of what the ranks of the last stage have. Collective over the world.
double share_of(const ScoredClasses& scored, const ProcessGroupMesh& mesh) {
  const auto is_first = [&](const char* axis) {
    const auto found = mesh.coordinates().find(axis);
    return found == mesh.coordinates().end() || found->second == 0;
  };
  const bool speaks = is_first(axis::kTensor) && is_first(axis::kContext);  // of those that have the same logits
  torch::Tensor sums = torch::zeros({2}, torch::kFloat64);
  if (speaks) sums = torch::tensor({scored.right, scored.counted}, torch::kFloat64);
  mesh.world_group().all_reduce(sums).wait();
  const auto* counts = sums.const_data_ptr<double>();
  return counts[1] == 0 ? 0 : counts[0] / counts[1];
}

}  // namespace

std::optional<EvaluationMetrics> Evaluator::run(std::int64_t step, Boosted& boosted, const std::function<bool()>& ends,
                                                const std::function<bool()>& stops) {
  EvaluationMetrics all{.step = step};
  ScoredClasses scored;
  double sum = 0;
  for (std::int64_t i = 0; i < loader_->steps(); ++i) {
    if (ends && ends()) return std::nullopt;
    const Batch batch = loader_->batch(i);
    const StepResult result = booster_.execute_pipeline(
        batch, boosted,
        {.return_outputs = scores_classes_, .broadcast_loss = true, .forward_only = true, .stops = stops});
    if (result.given_up) return std::nullopt;
    sum += *result.loss * static_cast<double>(result.tokens);
    all.tokens += result.tokens;
    if (scores_classes_) score(result.outputs, batch.tensors, scored);
  }
  all.loss = all.tokens > 0 ? sum / static_cast<double>(all.tokens) : 0;
  if (scores_classes_) all.accuracy = share_of(scored, booster_.mesh());
  return all;
}

}  // namespace gantry

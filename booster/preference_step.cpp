#include "gantry/booster/preference_step.h"

#include <algorithm>
#include <string>

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

double divergence_of_step(const ObjectiveParts& parts, const Batch& batch, Booster& booster, Boosted& boosted) {
  const StepResult result = booster.execute_pipeline(
      with_other_completions(batch), boosted,
      {.broadcast_loss = true, .forward_only = true, .criterion = divergence_from(parts.reference)});
  return std::max(*result.loss, 0.0);
}

// Every replica has the same number of ranks that read its samples, so the ratio of the sums over all ranks is that of
// the samples.
double pairs_per_token(const Batch& batch, ProcessGroup& world) {
  torch::Tensor sums = torch::zeros({2}, torch::kFloat64);
  if (const torch::Tensor labels = batch.tensors.get("labels"); labels.defined() && !labels.is_meta()) {
    torch::Tensor counted = labels != -100;
    if (const torch::Tensor prompts = batch.tensors.get("prompt_labels"); prompts.defined())
      counted = counted | (prompts != -100);
    counted = counted & (batch.tensors.at("document_ids") == kChosen);
    sums = torch::stack({torch::tensor(static_cast<double>(batch.samples), torch::kFloat64),
                         counted.sum().to(torch::kCPU, torch::kFloat64)});
  }
  world.all_reduce(sums).wait();
  const auto* numbers = sums.const_data_ptr<double>();
  return numbers[1] > 0 ? numbers[0] / numbers[1] : 0;
}

}  // namespace

Batch with_other_completions(Batch batch) {
  for (const std::string name : {"input_ids", "labels"})
    if (const torch::Tensor entry = batch.tensors.get("kl_" + name); entry.defined()) batch.tensors.set(name, entry);
  return batch;
}

void prepare_step(const ObjectiveParts& parts, const Batch& batch, Booster& booster, Boosted& boosted) {
  if (!parts.step) return;
  if (parts.reference)
    parts.step->divergence = divergence_of_step(parts, batch, booster, boosted);
  else
    parts.step->pairs_per_token = pairs_per_token(batch, booster.mesh().world_group());
}

}  // namespace gantry

#include "gantry/plugins/distillation_loss.h"

#include <utility>

#include "gantry/core/error.h"
#include "gantry/models/hidden_states.h"
#include "gantry/plugins/distilled_tokens.h"
#include "gantry/plugins/divergence.h"
#include "gantry/plugins/hidden_distances.h"
#include "gantry/plugins/top_k_loss.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

TensorDict with_given_labels(const TensorDict& batch) { return batch; }

DivergenceKind kind_of(const ObjectiveConfig& objective) {
  return {.name = objective.loss_type.empty() ? "forward" : objective.loss_type,
          .beta = objective.beta,
          .temperature = objective.temperature};
}

torch::Tensor rows_of(const torch::Tensor& kept, const TensorDict& batch) {
  return kept.index_select(0, batch.at(kTeacherRows).to(kept.device()));
}

torch::Tensor logits_of_teacher(const TeacherLogits& teacher, const TensorDict& batch, const torch::Tensor& logits) {
  const torch::Tensor& kept = teacher.logits;
  if (!kept.defined() || kept.dim() != 3 || kept.size(1) != logits.size(1) || kept.size(2) != logits.size(2))
    throw UsageError({"distillation_loss",
                      "the logits of the teacher are " + (kept.defined() ? describe(kept) : "missing") +
                          ", and those of the student " + describe(logits),
                      "the same tokens and vocabulary",
                      "run the teacher with keep_logits() on the same batch and layout before each step"});
  return rows_of(kept, batch);
}

torch::Tensor distances_of(const TeacherLogits& teacher, const TensorDict& outputs, const TensorDict& batch,
                           const SplitOutputs& split) {
  const torch::Tensor own = outputs.get(models::kHiddenStates);
  const torch::Tensor& kept = teacher.hidden;
  const auto dim = split.find(models::kHiddenStates);
  const bool is_full = dim == split.end() || !dim->second.placement.sharded();
  if (!own.defined() || !kept.defined() || kept.size(1) != own.size(1) || (is_full && kept.size(2) != own.size(2)))
    throw UsageError({"distillation_loss",
                      "the hidden states of the teacher are " + (kept.defined() ? describe(kept) : "missing") +
                          ", and those of the student " + (own.defined() ? describe(own) : "missing"),
                      "the same tokens and size, because of train.objective.hidden_weight",
                      "build the student with build_model(), and let the teacher return its hidden states"});
  return hidden_distances(own, rows_of(kept, batch), split);
}

// Copies the rows of a microbatch to those of the batch.
void keep_rows(torch::Tensor& all, const torch::Tensor& part, std::int64_t samples, const torch::Tensor& rows) {
  const torch::IntArrayRef one = part.sizes().slice(1);
  if (!all.defined() || all.size(0) != samples || all.sizes().slice(1) != one || all.dtype() != part.dtype())
    all = torch::empty({samples, part.size(1), part.size(2)}, part.options().requires_grad(false));
  all.index_copy_(0, rows.to(part.device()), part.detach());
}

}  // namespace

Criterion keep_logits(std::shared_ptr<TeacherLogits> kept) {
  const auto keep = [kept = std::move(kept)](const TensorDict& outputs, const TensorDict& batch, const SplitOutputs&) {
    const torch::Tensor &logits = outputs.at("logits"), &rows = batch.at(kTeacherRows);
    keep_rows(kept->logits, logits, kept->samples, rows);
    if (const torch::Tensor hidden = outputs.get(models::kHiddenStates); hidden.defined())
      keep_rows(kept->hidden, hidden, kept->samples, rows);
    return Loss(torch::zeros({}, logits.options().requires_grad(false)), torch::tensor(logits.size(0), torch::kInt64));
  };
  return Criterion::over_tokens(keep, with_given_labels, keep);
}

Criterion distillation_loss(const ObjectiveConfig& objective, const std::shared_ptr<const TeacherLogits>& teacher) {
  if (objective.top_k > 0) return top_k_loss(objective.alpha, objective.temperature);
  const DivergenceKind kind = kind_of(objective);
  const double factor = kind.name == "jsd" ? 1 : kind.temperature * kind.temperature;
  const auto divergence = [teacher, kind, factor](const TensorDict& outputs, const TensorDict& batch,
                                                  const SplitOutputs& split) {
    const torch::Tensor& logits = outputs.at("logits");
    const torch::Tensor others = logits_of_teacher(*teacher, batch, logits);
    const SplitDim* dim = split_logits(split);
    const torch::Tensor each =
        divergences(logits.flatten(0, 1), others.flatten(0, 1), dim ? dim->group : nullptr, kind);
    return factor * each.view({logits.size(0), logits.size(1)});
  };
  if (objective.hidden_weight == 0) return distilled_tokens(objective.alpha, divergence);
  const auto distance = [teacher, weight = objective.hidden_weight](const TensorDict& outputs, const TensorDict& batch,
                                                                    const SplitOutputs& split) {
    return weight * distances_of(*teacher, outputs, batch, split);
  };
  return distilled_tokens(objective.alpha, divergence, distance);
}

}  // namespace gantry

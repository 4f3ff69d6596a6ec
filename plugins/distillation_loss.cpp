#include "gantry/plugins/distillation_loss.h"

#include <utility>

#include "gantry/core/error.h"
#include "gantry/plugins/distilled_tokens.h"
#include "gantry/plugins/divergence.h"
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

torch::Tensor logits_of_teacher(const TeacherLogits& teacher, const TensorDict& batch, const torch::Tensor& logits) {
  const torch::Tensor& kept = teacher.logits;
  if (!kept.defined() || kept.dim() != 3 || kept.size(1) != logits.size(1) || kept.size(2) != logits.size(2))
    throw UsageError({"distillation_loss",
                      "the logits of the teacher are " + (kept.defined() ? describe(kept) : "missing") +
                          ", and those of the student " + describe(logits),
                      "the same tokens and vocabulary",
                      "run the teacher with keep_logits() on the same batch and layout before each step"});
  return kept.index_select(0, batch.at(kTeacherRows).to(kept.device()));
}

}  // namespace

Criterion keep_logits(std::shared_ptr<TeacherLogits> kept) {
  const auto keep = [kept = std::move(kept)](const TensorDict& outputs, const TensorDict& batch, const SplitOutputs&) {
    const std::int64_t samples = kept->samples;
    const torch::Tensor& logits = outputs.at("logits");
    torch::Tensor& all = kept->logits;
    const torch::IntArrayRef one = logits.sizes().slice(1);
    if (!all.defined() || all.size(0) != samples || all.sizes().slice(1) != one || all.dtype() != logits.dtype())
      all = torch::empty({samples, logits.size(1), logits.size(2)}, logits.options().requires_grad(false));
    all.index_copy_(0, batch.at(kTeacherRows).to(logits.device()), logits.detach());
    return Loss(torch::zeros({}, logits.options().requires_grad(false)), torch::tensor(logits.size(0), torch::kInt64));
  };
  return Criterion::over_tokens(keep, with_given_labels, keep);
}

Criterion distillation_loss(const ObjectiveConfig& objective, std::shared_ptr<const TeacherLogits> teacher) {
  if (objective.top_k > 0) return top_k_loss(objective.alpha, objective.temperature);
  const DivergenceKind kind = kind_of(objective);
  const double factor = kind.name == "jsd" ? 1 : kind.temperature * kind.temperature;
  return distilled_tokens(
      objective.alpha, [teacher = std::move(teacher), kind, factor](
                           const torch::Tensor& logits, const TensorDict& batch, const SplitOutputs& split) {
        const torch::Tensor others = logits_of_teacher(*teacher, batch, logits);
        const SplitDim* dim = split_logits(split);
        const torch::Tensor each =
            divergences(logits.flatten(0, 1), others.flatten(0, 1), dim ? dim->group : nullptr, kind);
        return factor * each.view({logits.size(0), logits.size(1)});
      });
}

}  // namespace gantry

#include "gantry/plugins/preference_loss.h"

#include <utility>

#include "gantry/core/error.h"
#include "gantry/nn/deferred_logits.h"
#include "gantry/plugins/completion_sums.h"
#include "gantry/plugins/objective_parts.h"
#include "gantry/plugins/token_losses.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// Rows of ReferenceScores.
torch::Tensor rows_of(const torch::Tensor& numbers, std::int64_t trained) {
  return torch::where(numbers < 0, trained - 1 - numbers, numbers);
}

torch::Tensor reference_of(const ReferenceScores& reference, const TensorDict& batch, const torch::Tensor& like) {
  const torch::Tensor rows = rows_of(batch.at("sample_numbers"), reference.trained);
  return reference.scores.to(rows.device()).index_select(0, rows).to(like.options());
}

torch::Tensor margin_of(const torch::Tensor& pairs) { return pairs.select(1, 0) - pairs.select(1, 1); }

struct SampleLosses {
  torch::Tensor losses;   // [samples]
  torch::Tensor rewards;  // [samples, 2]; kto: [samples]
};

SampleLosses simpo_losses(const ObjectiveConfig& objective, const CompletionSums& sums) {
  const torch::Tensor rewards = objective.beta * sums.means();
  return {-torch::log_sigmoid(margin_of(rewards) - objective.gamma), rewards};
}

// Uses the log odds, log(p / (1 - p)), of the mean probabilities.
SampleLosses orpo_losses(const ObjectiveConfig& objective, const CompletionSums& sums) {
  const torch::Tensor means = sums.means().narrow(1, 0, 2), odds = margin_of(means - torch::log1p(-means.exp()));
  return {-objective.beta * torch::log_sigmoid(odds), objective.beta * means};
}

SampleLosses kto_losses(const ObjectiveConfig& objective, const torch::Tensor& gains, const TensorDict& batch,
                        const StepNumbers& step) {
  const torch::Tensor gain = gains.select(1, 0), desirable = batch.at("desirable") != 0,
                      margin = objective.beta * (gain - step.divergence);
  return {torch::where(desirable, objective.desirable_weight * (1 - margin.sigmoid()),
                       objective.undesirable_weight * (1 - (-margin).sigmoid())),
          objective.beta * gain};
}

torch::Tensor squared_distance(const torch::Tensor& margin, double beta) { return (margin - 1 / (2 * beta)).square(); }

// dpo and cpo. `gains`: log-probabilities, for dpo relative to the reference.
SampleLosses dpo_losses(const ObjectiveConfig& objective, const torch::Tensor& gains) {
  const double wrong = objective.label_smoothing;
  const torch::Tensor rewards = objective.beta * gains, margin = margin_of(rewards);
  if (objective.loss_type == "ipo") return {squared_distance(margin_of(gains), objective.beta), rewards};
  if (objective.loss_type == "hinge") return {torch::relu(1 - margin), rewards};
  const torch::Tensor right = -torch::log_sigmoid(margin), swapped = -torch::log_sigmoid(-margin);
  if (objective.loss_type == "robust") return {((1 - wrong) * right - wrong * swapped) / (1 - 2 * wrong), rewards};
  return {(1 - wrong) * right + wrong * swapped, rewards};
}

SampleLosses ipo_losses(const ObjectiveConfig& objective, const torch::Tensor& gains, const CompletionSums& sums) {
  return {squared_distance(margin_of(gains / sums.tokens), objective.beta), objective.beta * gains};
}

SampleLosses losses_of(const ObjectiveConfig& objective, const ObjectiveParts& parts, const CompletionSums& sums,
                       const TensorDict& batch) {
  if (objective.name == "simpo") return simpo_losses(objective, sums);
  if (objective.name == "cpo") return dpo_losses(objective, sums.scores);
  if (objective.name == "orpo") return orpo_losses(objective, sums);
  const torch::Tensor reference = reference_of(*parts.reference, batch, sums.scores);
  if (objective.name == "kto")
    return kto_losses(objective, sums.scores - reference.narrow(1, 0, 1), batch, *parts.step);
  const torch::Tensor gains = sums.scores - reference;
  return objective.name == "ipo" ? ipo_losses(objective, gains, sums) : dpo_losses(objective, gains);
}

// The share of each sample in the cross entropy of all chosen texts of the step: the full texts, if the batch has the
// labels of prompts, or their completions.
torch::Tensor chosen_losses(const CompletionSums& sums, const StepNumbers& step) {
  const std::int64_t chosen = sums.scores.size(1) == 3 ? 2 : 0;
  return -sums.scores.select(1, chosen) * step.pairs_per_token;
}

Loss sum_over_samples(const torch::Tensor& losses) {
  return Loss(losses.sum(), torch::tensor(losses.size(0), torch::kInt64));
}

// All ranks have the sums of all parts, so only one of them returns the loss.
Loss of_one_rank(const Loss& loss, const ProcessGroup& parts) {
  if (parts.rank() == 0) return loss;
  return Loss(loss.sum - loss.sum.detach(), torch::zeros_like(loss.count));
}

// The sums of a microbatch's completions, computed from its logits, in either form.
CompletionSums sums_of(const TensorDict& outputs, const TensorDict& batch, const SplitOutputs& split) {
  return completion_sums([&](const torch::Tensor& labels) { return token_losses(outputs.at("logits"), labels, split); },
                         batch);
}
CompletionSums sums_of(const nn::DeferredLogits& logits, const TensorDict& batch) {
  return completion_sums([&](const torch::Tensor& labels) { return nn::token_losses(logits, labels); }, batch);
}

template <class LossOf>
Criterion over_completions(const LossOf& loss_of) {
  const auto of_part = [loss_of](const CompletionSums& part, const TensorDict& batch, ProcessGroup& parts) {
    return of_one_rank(loss_of(over_parts(part, parts), batch), parts);
  };
  return Criterion::over_sequences(
             [loss_of](const TensorDict& outputs, const TensorDict& batch, const SplitOutputs& split) {
               return loss_of(sums_of(outputs, batch, split), batch);
             },
             [of_part](const TensorDict& outputs, const TensorDict& batch, const SplitOutputs& split,
                       ProcessGroup& parts) { return of_part(sums_of(outputs, batch, split), batch, parts); })
      .with_deferred_logits({"labels",
                             [loss_of](const nn::DeferredLogits& logits, const TensorDict& batch) {
                               return loss_of(sums_of(logits, batch), batch);
                             },
                             [of_part](ProcessGroup& parts) {
                               return [of_part, &parts](const nn::DeferredLogits& logits, const TensorDict& batch) {
                                 return of_part(sums_of(logits, batch), batch, parts);
                               };
                             }});
}

// Bradley-Terry: the probability that the chosen text is preferred is sigmoid(chosen - rejected).
Criterion reward_loss(const ObjectiveConfig& objective, std::shared_ptr<RewardMeter> meter) {
  return Criterion([center = objective.center_rewards_coefficient, meter = std::move(meter)](const TensorDict& outputs,
                                                                                             const TensorDict& batch) {
    const torch::Tensor scores = outputs.at("logits").squeeze(-1);
    if (meter) meter->add_pairs(scores);
    const torch::Tensor margins = batch.at("margins").to(scores.scalar_type());
    return sum_over_samples(-torch::log_sigmoid(margin_of(scores) - margins) + center * scores.sum(1).square());
  });
}

void require_parts(const ObjectiveConfig& objective, const ObjectiveParts& parts) {
  const ObjectiveParts needed = objective_parts(objective);
  if (needed.reference && !parts.reference)
    throw UsageError({"preference_loss", objective.name + " compares with a reference model", "its scores",
                      "compute them with preference_scores()"});
  if (needed.step && !parts.step)
    throw UsageError({"preference_loss", objective.name + " needs numbers of the full step", "ObjectiveParts::step",
                      "use objective_parts(), and call prepare_step() before each step"});
}

}  // namespace

Criterion preference_loss(const ObjectiveConfig& objective, const ObjectiveParts& parts) {
  require_parts(objective, parts);
  if (objective.name == "reward") return reward_loss(objective, parts.rewards);
  return over_completions([objective, parts](const CompletionSums& sums, const TensorDict& batch) {
    SampleLosses samples = losses_of(objective, parts, sums, batch);
    if (const double weight = objective.chosen_weight(); weight > 0)
      samples.losses = samples.losses + weight * chosen_losses(sums, *parts.step);
    if (parts.rewards && objective.name == "kto")
      parts.rewards->add_single(samples.rewards, batch.at("desirable"));
    else if (parts.rewards)
      parts.rewards->add_pairs(samples.rewards);
    return sum_over_samples(samples.losses);
  });
}

Criterion preference_scores(std::shared_ptr<ReferenceScores> scores, std::int64_t column) {
  return over_completions([scores = std::move(scores), column](const CompletionSums& sums, const TensorDict& batch) {
    const torch::Tensor rows = rows_of(batch.at("sample_numbers"), scores->trained).cpu();
    scores->scores.narrow(1, column, sums.scores.size(1))
        .index_copy_(0, rows, sums.scores.detach().to(torch::kCPU, torch::kFloat64));
    return sum_over_samples(torch::zeros({rows.size(0)}, sums.scores.options()));
  });
}

Criterion divergence_from(std::shared_ptr<const ReferenceScores> reference) {
  return over_completions([reference = std::move(reference)](const CompletionSums& sums, const TensorDict& batch) {
    return sum_over_samples((sums.scores - reference_of(*reference, batch, sums.scores).narrow(1, 1, 1)).select(1, 0));
  });
}

}  // namespace gantry

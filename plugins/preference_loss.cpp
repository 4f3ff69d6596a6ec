#include "gantry/plugins/preference_loss.h"

#include <utility>

#include "gantry/core/error.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// Sums over the completions of each pair [pairs, 2]: chosen, rejected.
struct PairSums {
  torch::Tensor scores;  // log-probabilities
  torch::Tensor tokens;  // their numbers, in the type of the scores
  PairSums means() const { return {scores / tokens, tokens}; }
};

torch::Tensor token_losses_of(const TensorDict& outputs, const TensorDict& batch, const SplitOutputs& split) {
  const torch::Tensor &logits = outputs.at("logits"), &labels = batch.at("labels");
  const auto dim = split.find("logits");
  if (dim == split.end()) return nn::token_losses(logits, labels);
  return nn::token_losses(logits, labels, *dim->second.group, dim->second.placement);
}

PairSums sums_of(const TensorDict& outputs, const TensorDict& batch, const SplitOutputs& split) {
  const torch::Tensor losses = token_losses_of(outputs, batch, split), &documents = batch.at("document_ids");
  const torch::Tensor counted = batch.at("labels") != -100;
  const auto both = [&](const auto& sum) { return torch::stack({sum(kChosen), sum(kRejected)}, 1); };
  return {both([&](std::int64_t which) { return -(losses * (documents == which)).sum(1); }),
          both([&](std::int64_t which) { return (counted & (documents == which)).sum(1).to(losses.scalar_type()); })};
}

// The sums over all parts of the sequences. Gradients flow to this rank's part.
PairSums over_parts(const PairSums& here, ProcessGroup& parts) {
  torch::Tensor all = torch::cat({here.scores.detach(), here.tokens}, 1);
  parts.all_reduce(all).wait();
  return {here.scores + (all.narrow(1, 0, 2) - here.scores.detach()), all.narrow(1, 2, 2).contiguous()};
}

// Rows of ReferenceScores.
torch::Tensor rows_of(const torch::Tensor& numbers, std::int64_t trained) {
  return torch::where(numbers < 0, trained - 1 - numbers, numbers);
}

torch::Tensor reference_of(const ReferenceScores& reference, const TensorDict& batch, const torch::Tensor& like) {
  const torch::Tensor rows = rows_of(batch.at("sample_numbers"), reference.trained);
  return reference.scores.to(rows.device()).index_select(0, rows).to(like.options());
}

torch::Tensor margin_of(const torch::Tensor& pairs) { return pairs.select(1, 0) - pairs.select(1, 1); }

struct PairLosses {
  torch::Tensor losses;   // [pairs]
  torch::Tensor rewards;  // [pairs, 2]
};

PairLosses losses_of(const ObjectiveConfig& objective, const PairSums& sums, const torch::Tensor& reference) {
  const double beta = objective.beta;
  if (objective.name == "simpo") {
    const torch::Tensor rewards = beta * sums.means().scores;
    return {-torch::log_sigmoid(margin_of(rewards) - objective.gamma), rewards};
  }
  const torch::Tensor gains = sums.scores - reference, rewards = beta * gains, margin = margin_of(rewards);
  if (objective.name == "ipo") return {(margin_of(gains / sums.tokens) - 1 / (2 * beta)).square(), rewards};
  if (objective.loss_type == "hinge") return {torch::relu(1 - margin), rewards};
  const double wrong = objective.label_smoothing;
  return {-(1 - wrong) * torch::log_sigmoid(margin) - wrong * torch::log_sigmoid(-margin), rewards};
}

Loss sum_over_pairs(const torch::Tensor& losses) {
  return Loss(losses.sum(), torch::tensor(losses.size(0), torch::kInt64));
}

// The sums of all parts have all ranks, and one of them returns the loss.
Loss of_one_rank(const Loss& loss, const ProcessGroup& parts) {
  if (parts.rank() == 0) return loss;
  return Loss(loss.sum - loss.sum.detach(), torch::zeros_like(loss.count));
}

template <class LossOf>
Criterion over_pairs(const LossOf& loss_of) {
  return Criterion::over_sequences(
      [loss_of](const TensorDict& outputs, const TensorDict& batch, const SplitOutputs& split) {
        return loss_of(sums_of(outputs, batch, split), batch);
      },
      [loss_of](const TensorDict& outputs, const TensorDict& batch, const SplitOutputs& split, ProcessGroup& parts) {
        return of_one_rank(loss_of(over_parts(sums_of(outputs, batch, split), parts), batch), parts);
      });
}

}  // namespace

void RewardMeter::add(const torch::Tensor& rewards) {
  const torch::Tensor given = rewards.detach().to(torch::kFloat64);
  const torch::Tensor correct = (given.select(1, 0) > given.select(1, 1)).sum().to(torch::kFloat64);
  const torch::Tensor sums =
      torch::cat({given.sum(0), correct.view({1}), torch::full({1}, given.size(0), given.options())});
  sums_ = sums_.defined() ? sums_ + sums : sums;
}

RewardMetrics RewardMeter::means(ProcessGroup& world) const {
  torch::Tensor all = sums_.defined() ? sums_.cpu().clone() : torch::zeros({4}, torch::kFloat64);
  world.all_reduce(all).wait();  // ranks with the same pairs have the same sums, so the means are those of the pairs
  const auto* sums = all.const_data_ptr<double>();
  const double pairs = sums[3] > 0 ? sums[3] : 1;
  return {.chosen = sums[0] / pairs, .rejected = sums[1] / pairs, .accuracy = sums[2] / pairs};
}

Criterion preference_loss(const ObjectiveConfig& objective, std::shared_ptr<const ReferenceScores> reference,
                          std::shared_ptr<RewardMeter> meter) {
  if (objective.has_reference() && !reference)
    throw UsageError({"preference_loss", objective.name + " compares with a reference model", "its scores",
                      "compute them with preference_scores()"});
  return over_pairs([objective, reference = std::move(reference), meter = std::move(meter)](const PairSums& sums,
                                                                                            const TensorDict& batch) {
    const bool compares = objective.has_reference();
    const PairLosses pairs =
        losses_of(objective, sums, compares ? reference_of(*reference, batch, sums.scores) : torch::Tensor());
    if (meter) meter->add(pairs.rewards);
    return sum_over_pairs(pairs.losses);
  });
}

Criterion preference_scores(std::shared_ptr<ReferenceScores> scores) {
  return over_pairs([scores = std::move(scores)](const PairSums& sums, const TensorDict& batch) {
    const torch::Tensor rows = rows_of(batch.at("sample_numbers"), scores->trained).cpu();
    scores->scores.index_copy_(0, rows, sums.scores.detach().to(torch::kCPU, torch::kFloat64));
    return sum_over_pairs(torch::zeros({rows.size(0)}, sums.scores.options()));
  });
}

}  // namespace gantry

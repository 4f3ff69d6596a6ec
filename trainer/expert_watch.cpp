#include "gantry/trainer/expert_watch.h"

#include <fmt/format.h>
#include <numeric>

#include <torch/torch.h>

namespace gantry {

std::string ExpertWatch::add(const StepMetrics& metrics) {
  const auto& layers = metrics.experts.layers;
  if (layers.empty()) return "";
  if (steps_ == 0) {
    sums_ = layers;
  } else {
    for (std::size_t layer = 0; layer < layers.size(); ++layer)
      for (std::size_t expert = 0; expert < layers[layer].tokens.size(); ++expert)
        sums_[layer].tokens[expert] += layers[layer].tokens[expert];
  }
  return ++steps_ == kSteps ? judged(metrics.step) : "";
}

std::string ExpertWatch::judged(std::int64_t step) {
  steps_ = 0;
  std::set<std::pair<std::size_t, std::size_t>> starving;
  std::string first;
  std::size_t further = 0;
  for (std::size_t layer = 0; layer < sums_.size(); ++layer) {
    const auto& tokens = sums_[layer].tokens;
    const auto count = static_cast<std::int64_t>(tokens.size());
    const std::int64_t all = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
    if (all < kShare * count) continue;
    for (std::size_t expert = 0; expert < tokens.size(); ++expert) {
      if (tokens[expert] * count * kShare >= all) continue;
      starving.emplace(layer, expert);
      if (starving_.contains({layer, expert})) continue;
      if (!first.empty()) ++further;
      if (first.empty())
        first = fmt::format("expert {} of {} had {} of {} choices in steps {} to {}", expert, sums_[layer].router,
                            tokens[expert], all, step - kSteps + 1, step);
    }
  }
  starving_ = std::move(starving);
  if (first.empty()) return "";
  if (further > 0) first += fmt::format(", and {} more experts are starved", further);
  return first + fmt::format(": less than a {}th of the mean; balance them with experts.balance or experts.bias_update",
                             kShare);
}

void ExpertTraffic::set(StepMetrics& metrics) {
  if (!mesh_.mesh().has_expert_view()) return;
  double bytes = 0, seconds = 0;
  for (const auto& count : meter_.counts()) {
    if (count.axis != axis::kExpert || count.operation != "all_to_all") continue;
    bytes += static_cast<double>(count.bytes);
    seconds += count.seconds;
  }
  torch::Tensor sums = torch::tensor({bytes - bytes_, seconds - seconds_}, torch::kFloat64);
  bytes_ = bytes;
  seconds_ = seconds;
  mesh_.world_group().all_reduce(sums).wait();
  const auto* sum = sums.const_data_ptr<double>();
  metrics.all_to_all_bytes = sum[0] / mesh_.world_group().size();
  metrics.all_to_all_seconds = sum[1] / mesh_.world_group().size();
}

}  // namespace gantry

#include "gantry/plugins/preference_loss.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

torch::Tensor as_sums(const std::vector<torch::Tensor>& sums) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& sum : sums) all.push_back(sum.to(torch::kFloat64).view({1}));
  return torch::cat(all);
}

}  // namespace

void RewardMeter::add(const torch::Tensor& sums) { sums_ = sums_.defined() ? sums_ + sums : sums; }

void RewardMeter::add_pairs(const torch::Tensor& rewards) {
  const torch::Tensor given = rewards.detach().to(torch::kFloat64), chosen = given.select(1, 0),
                      rejected = given.select(1, 1), pairs = torch::full({1}, given.size(0), given.options());
  add(as_sums({chosen.sum(), pairs, rejected.sum(), pairs, (chosen > rejected).sum(), pairs}));
}

void RewardMeter::add_single(const torch::Tensor& rewards, const torch::Tensor& desirable) {
  const torch::Tensor given = rewards.detach().to(torch::kFloat64), good = (desirable != 0).to(torch::kFloat64),
                      bad = 1 - good, none = torch::zeros({1}, given.options());
  add(as_sums({(given * good).sum(), good.sum(), (given * bad).sum(), bad.sum(), none, none}));
}

RewardMetrics RewardMeter::means(ProcessGroup& world) const {
  torch::Tensor all = sums_.defined() ? sums_.cpu().clone() : torch::zeros({6}, torch::kFloat64);
  world.all_reduce(all).wait();  // ranks with the same samples have the same sums, so the means are those of samples
  const auto* sums = all.const_data_ptr<double>();
  const auto mean = [&](int sum) {
    return sums[sum + 1] > 0 ? std::optional(sums[sum] / sums[sum + 1]) : std::nullopt;
  };
  return {.chosen = mean(0), .rejected = mean(2), .accuracy = mean(4), .divergence = {}};
}

}  // namespace gantry

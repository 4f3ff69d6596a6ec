#include "gantry/plugins/step_end.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

std::vector<double> sum_over_ranks(const std::vector<double>& numbers, const ProcessGroupMesh& mesh) {
  torch::Tensor totals = torch::tensor(numbers, torch::kFloat64);
  mesh.batch_group_and(axis::kPipeline).all_reduce(totals).wait();
  const auto* total = totals.const_data_ptr<double>();
  return {total, total + totals.numel()};
}

// The names of all ranks, sorted.
std::vector<std::string> agree_on_names(std::set<std::string> names, const ProcessGroupMesh& mesh) {
  ProcessGroup& group = mesh.batch_group_and(axis::kPipeline);
  const std::string mine = nlohmann::json(names).dump();
  for (int rank = 0; rank < group.size(); ++rank)
    for (const auto& name : nlohmann::json::parse(broadcast_text(group, mine, rank))) names.insert(name);
  return {names.begin(), names.end()};
}

}  // namespace

StepEnd agree_on_end(const StepEnd& mine, const ProcessGroupMesh& mesh) {
  const auto sums = sum_over_ranks({mine.counted, mine.aborted ? 1.0 : 0.0, mine.unsent ? 1.0 : 0.0}, mesh);
  return {.counted = sums[0], .aborted = sums[1] > 0, .unsent = sums[2] > 0};
}

TotalLoss read_loss(const StepLosses& losses, std::int64_t counted, BoostedOptimizer* synced,
                    const ModelRouters* routers, std::vector<std::string>& names, const ProcessGroupMesh& mesh) {
  std::vector<torch::Tensor> read = losses.criterion;
  for (const auto& [name, parts] : losses.added) read.insert(read.end(), parts.begin(), parts.end());
  const auto own = static_cast<std::ptrdiff_t>(read.size());
  if (synced) read.push_back(synced->part_norms());
  const auto norms = synced ? static_cast<std::ptrdiff_t>(read.back().numel()) : 0;
  if (routers && routers->counted().defined()) read.push_back(routers->counted());
  const auto numbers = read_back(read);
  const auto after_norms = numbers.begin() + own + norms;
  if (synced) synced->set_part_norms({numbers.begin() + own, after_norms});
  const auto of_experts = routers ? routers->summand({after_norms, numbers.end()}) : std::vector<double>();

  std::map<std::string, double> added;
  auto next = numbers.begin() + static_cast<std::ptrdiff_t>(losses.criterion.size());
  bool is_known = true;
  for (const auto& [name, parts] : losses.added) {
    const auto end = next + static_cast<std::ptrdiff_t>(parts.size());
    added[name] = std::accumulate(next, end, 0.0);
    next = end;
    is_known = is_known && std::binary_search(names.begin(), names.end(), name);
  }
  auto sums_of = [&] {
    std::vector<double> sums{std::accumulate(numbers.begin(), numbers.begin() + own, 0.0), static_cast<double>(counted),
                             is_known ? 0.0 : 1.0};
    sums.insert(sums.end(), of_experts.begin(), of_experts.end());
    for (const auto& name : names) sums.push_back(added.contains(name) ? added.at(name) : 0.0);
    return sum_over_ranks(sums, mesh);
  };
  auto sums = sums_of();
  if (sums[2] > 0) {
    std::set<std::string> all(names.begin(), names.end());
    for (const auto& [name, sum] : added) all.insert(name);
    names = agree_on_names(std::move(all), mesh);
    sums = sums_of();
  }
  TotalLoss total{.sum = sums[0], .count = sums[1], .added = {}, .experts = {}};
  const auto experts_end = sums.begin() + 3 + static_cast<std::ptrdiff_t>(of_experts.size());
  if (routers) total.experts = routers->loads({sums.begin() + 3, experts_end});
  for (std::size_t i = 0; i < names.size(); ++i) total.added[names[i]] = experts_end[static_cast<std::ptrdiff_t>(i)];
  return total;
}

}  // namespace gantry

#include "gantry/plugins/step_end.h"

#include <numeric>

#include <torch/torch.h>

#include "gantry/tensors/host_copy.h"

namespace gantry {
namespace {

std::pair<double, double> sum_over_ranks(double first, double second, const ProcessGroupMesh& mesh) {
  torch::Tensor totals = torch::tensor({first, second}, torch::kFloat64);
  mesh.batch_group_and(axis::kPipeline).all_reduce(totals).wait();
  const auto* total = totals.const_data_ptr<double>();
  return {total[0], total[1]};
}

}  // namespace

StepEnd agree_on_end(std::int64_t counted, bool given_up, const ProcessGroupMesh& mesh) {
  const auto [tokens, votes] = sum_over_ranks(static_cast<double>(counted), given_up ? 1 : 0, mesh);
  return {.counted = tokens, .given_up = votes > 0};
}

TotalLoss read_loss(std::vector<torch::Tensor> losses, std::int64_t counted, BoostedOptimizer* synced,
                    const ProcessGroupMesh& mesh) {
  const auto own = static_cast<std::ptrdiff_t>(losses.size());
  if (synced) losses.push_back(synced->part_norms());
  const auto numbers = read_back(losses);
  if (synced) synced->set_part_norms({numbers.begin() + own, numbers.end()});
  const auto [sum, count] =
      sum_over_ranks(std::accumulate(numbers.begin(), numbers.begin() + own, 0.0), static_cast<double>(counted), mesh);
  return {.sum = sum, .count = count};
}

}  // namespace gantry

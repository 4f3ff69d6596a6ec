#include "gantry/plugins/mtp_labels.h"

#include <algorithm>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/nn/mtp_tokens.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

std::string labels_entry(const Criterion& criterion) {
  return criterion.labelled() ? criterion.labelled()->labels : "labels";
}

}  // namespace

void add_mtp_tokens(Batch& batch, const Criterion& criterion, int depths) {
  const torch::Tensor labels = criterion.aligned(batch.tensors).get(labels_entry(criterion));
  batch.tensors = nn::with_mtp_tokens(std::move(batch.tensors), labels, depths);
}

std::vector<double> mtp_ratios(const Batch& batch, const Criterion& criterion, int depths, bool counts,
                               const ProcessGroupMesh& mesh) {
  std::vector<double> numbers(static_cast<std::size_t>(depths) + 1);
  if (counts) {
    const auto labels = criterion.counted(batch.tensors);
    if (!labels)
      throw UsageError({"multi-token prediction",
                        "the number of labels that a step counts is unknown before the step, but the weights of the "
                        "losses need it",
                        "gantry::cross_entropy or gantry::causal_cross_entropy", "use one of them as the criterion"});
    numbers = nn::count_mtp_labels(batch.tensors, depths);
    numbers.insert(numbers.begin(), static_cast<double>(*labels));
  }
  torch::Tensor sums = torch::tensor(numbers, torch::kFloat64);
  mesh.batch_group_and(axis::kPipeline).all_reduce(sums).wait();
  const auto* sum = sums.const_data_ptr<double>();
  std::vector<double> ratios;
  for (int depth = 1; depth <= depths; ++depth) ratios.push_back(sum[0] / std::max(1.0, sum[depth]));
  return ratios;
}

}  // namespace gantry

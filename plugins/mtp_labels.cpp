#include "gantry/plugins/mtp_labels.h"

#include <algorithm>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/data/dataset.h"
#include "gantry/nn/mtp_tokens.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

std::string labels_entry(const Criterion& criterion) {
  return criterion.labelled() ? criterion.labelled()->labels : "labels";
}

// The losses of the depths are plain cross entropies.
void refuse_options(const nn::CrossEntropyOptions& options) {
  if (options.label_smoothing == 0 && options.z_loss == 0 && options.vocabulary == 0) return;
  throw UsageError(
      {"multi-token prediction",
       "the criterion has label smoothing, a z-loss or padded columns, which the losses of its depths lack",
       "gantry::cross_entropy or gantry::causal_cross_entropy without these options",
       "remove the options, or model.config.mtp_loss_scaling_factor"});
}

[[noreturn]] void refuse_unknown_labels() {
  throw UsageError({"multi-token prediction",
                    "the number of labels that a step counts is unknown before the step, but the weights of the losses "
                    "need it",
                    "gantry::cross_entropy or gantry::causal_cross_entropy", "use one of them as the criterion"});
}

}  // namespace

void add_mtp_tokens(Batch& batch, const Criterion& criterion, int depths) {
  torch::Tensor labels = criterion.aligned(batch.tensors).get(labels_entry(criterion));
  if (const auto& loss = criterion.labelled(); loss && labels.defined()) {
    refuse_options(loss->options);
    if (const std::int64_t ignored = loss->options.ignore_index; ignored != kNotCounted)
      labels = labels.masked_fill(labels == ignored, kNotCounted);
  }
  batch.tensors = nn::with_mtp_tokens(std::move(batch.tensors), labels, depths);
}

std::vector<double> mtp_ratios(const Batch& batch, const Criterion& criterion, int depths, bool counts,
                               const ProcessGroupMesh& mesh) {
  if (!criterion.labelled()) refuse_unknown_labels();
  std::vector<double> numbers(static_cast<std::size_t>(depths) + 1);
  if (counts) {
    numbers = nn::count_mtp_labels(batch.tensors, depths);
    const auto labels = criterion.counted(batch.tensors);
    if (!labels) refuse_unknown_labels();
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

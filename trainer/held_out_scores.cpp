#include "gantry/trainer/held_out_scores.h"

#include <limits>

#include "gantry/comm/process_group.h"
#include "gantry/core/axis.h"
#include "gantry/data/dataset.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

void add_to(std::vector<double>& sums, const double* numbers, std::size_t count) {
  sums.resize(count);
  for (std::size_t i = 0; i < count; ++i) sums[i] += numbers[i];
}

// Of ranks that have the same logits one speaks.
bool speaks(const ProcessGroupMesh& mesh) {
  for (const char* name : {axis::kTensor, axis::kContext})
    if (const auto found = mesh.coordinates().find(name); found != mesh.coordinates().end() && found->second != 0)
      return false;
  return true;
}

// [B, S, S]: the sum of the logits of a start and an end; those that are no span are the least.
torch::Tensor span_sums(const torch::Tensor& logits, const TensorDict& batch) {
  constexpr double kLeast = std::numeric_limits<double>::lowest();
  const torch::Tensor wide = logits.detach().to(torch::kFloat64);
  torch::Tensor sums = wide.select(2, 0).unsqueeze(2) + wide.select(2, 1).unsqueeze(1);
  torch::Tensor none = torch::ones({sums.size(1), sums.size(2)}, sums.options().dtype(torch::kBool)).tril(-1);
  if (const torch::Tensor mask = batch.get("attention_mask"); mask.defined() && mask.dim() == 2) {
    const torch::Tensor padding = mask.to(sums.device()) == 0;
    none = none | padding.unsqueeze(2) | padding.unsqueeze(1);
  }
  return sums.masked_fill(none, kLeast);
}

double f1_of(double right, double predicted, double labelled) { return 2 * right / (predicted + labelled); }

}  // namespace

void HeldOutScores::add(const TensorDict& outputs, const TensorDict& batch) {
  const torch::Tensor logits = outputs.get("logits");
  if (!logits.defined() || logits.size(0) == 0) return;
  if (batch.get("start_positions").defined()) return add_spans(logits, batch);
  add_classes(logits, batch.at("labels").to(logits.device(), torch::kInt64));
}

void HeldOutScores::add_classes(const torch::Tensor& logits, const torch::Tensor& labels) {
  const std::int64_t classes = logits.size(-1);
  const torch::Tensor counted = labels != kNotCounted, predictions = logits.argmax(-1);
  const torch::Tensor truth = labels.masked_select(counted), guess = predictions.masked_select(counted);
  const auto count = [&](const torch::Tensor& of) { return torch::bincount(of, {}, classes).to(torch::kFloat64); };
  const auto numbers = read_back({count(truth.masked_select(truth == guess)), count(guess), count(truth)});
  const auto width = static_cast<std::size_t>(classes);
  add_to(right_, numbers.data(), width);
  add_to(predicted_, numbers.data() + width, width);
  add_to(labelled_, numbers.data() + 2 * width, width);
}

void HeldOutScores::add_spans(const torch::Tensor& logits, const TensorDict& batch) {
  are_spans_ = true;
  const std::int64_t tokens = logits.size(1);
  const auto places = [&](const char* name) { return batch.at(name).to(logits.device(), torch::kInt64); };
  const torch::Tensor start = places("start_positions"), end = places("end_positions");
  const torch::Tensor best = span_sums(logits, batch).flatten(1).argmax(1);
  const torch::Tensor from = torch::floor_divide(best, tokens), to = best.remainder(tokens);
  const torch::Tensor shared = (torch::minimum(to, end) - torch::maximum(from, start) + 1).clamp_min(0);
  const torch::Tensor f1 = 2.0 * shared.to(torch::kFloat64) / (to - from + 1 + end - start + 1).to(torch::kFloat64);
  const torch::Tensor counted = (start >= 0) & (end >= start) & (end < tokens);
  const torch::Tensor right = (from == start) & (to == end) & counted;
  const auto numbers = read_back({right.sum(), f1.masked_select(counted).sum(), counted.sum()});
  add_to(right_, &numbers[0], 1);
  add_to(predicted_, &numbers[1], 1);
  add_to(labelled_, &numbers[2], 1);
}

HeldOutScores::Means HeldOutScores::over(const ProcessGroupMesh& mesh) const {
  // Stages without logits don't know how many classes there are.
  torch::Tensor shape = torch::tensor({static_cast<double>(right_.size()), are_spans_ ? 1.0 : 0.0}, torch::kFloat64);
  mesh.world_group().all_reduce(shape, ReduceOp::kMax).wait();
  const auto width = static_cast<std::int64_t>(shape.const_data_ptr<double>()[0]);
  torch::Tensor sums = torch::zeros({3, width}, torch::kFloat64);
  auto* numbers = sums.data_ptr<double>();
  if (speaks(mesh) && !right_.empty())
    for (const auto* part : {&right_, &predicted_, &labelled_})
      numbers = std::copy(part->begin(), part->end(), numbers);
  mesh.world_group().all_reduce(sums).wait();
  const auto* right = sums.const_data_ptr<double>();
  const double *predicted = right + width, *labelled = predicted + width;
  if (shape.const_data_ptr<double>()[1] > 0)
    return labelled[0] == 0 ? Means() : Means{right[0] / labelled[0], predicted[0] / labelled[0]};
  double all_right = 0, all = 0, f1 = 0, present = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    if (predicted[i] + labelled[i] == 0) continue;
    all_right += right[i];
    all += labelled[i];
    f1 += f1_of(right[i], predicted[i], labelled[i]);
    ++present;
  }
  return present == 0 ? Means() : Means{all_right / all, f1 / present};
}

}  // namespace gantry

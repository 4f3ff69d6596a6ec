#include "gantry/trainer/held_out_scores.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "gantry/comm/process_group.h"
#include "gantry/core/axis.h"
#include "gantry/data/dataset.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr std::int64_t kMostRows = 5;
constexpr std::int64_t kMoments = sizeof(Moments) / sizeof(double);

// True on one of the ranks that have the same logits. Only this rank contributes to the sums.
bool speaks(const ProcessGroupMesh& mesh) {
  for (const char* name : {axis::kTensor, axis::kContext})
    if (const auto found = mesh.coordinates().find(name); found != mesh.coordinates().end() && found->second != 0)
      return false;
  return true;
}

// Returns the sum of the logits of each start and end, [B, S, S]. Pairs that are not a span get the lowest
// double.
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

// Returns the mean F1 of the classes that occur; nothing if no class occurs.
std::optional<double> macro_f1(const double* right, const double* predicted, const double* labelled,
                               std::int64_t width) {
  double f1 = 0, present = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    if (predicted[i] + labelled[i] == 0) continue;
    f1 += f1_of(right[i], predicted[i], labelled[i]);
    ++present;
  }
  return present == 0 ? std::nullopt : std::optional(f1 / present);
}

double share_of(double part, double all) { return all == 0 ? 0 : part / all; }

}  // namespace

void HeldOutScores::add(const TensorDict& outputs, const TensorDict& batch) {
  const torch::Tensor logits = outputs.get("logits");
  if (!logits.defined() || logits.size(0) == 0) return;
  if (predictions_ == Predictions::kSpans) return add_spans(logits, batch);
  const torch::Tensor labels = batch.at("labels").to(logits.device());
  if (predictions_ == Predictions::kSeveralLabels) return add_several(logits, labels);
  if (predictions_ == Predictions::kNumbers) return add_numbers(logits, labels);
  add_classes(logits, labels.to(torch::kInt64));
}

void HeldOutScores::add_rows(const std::vector<torch::Tensor>& rows) {
  const auto numbers = read_back(rows);
  const std::size_t width = numbers.size() / rows.size();
  sums_.resize(rows.size(), std::vector<double>(width));
  for (std::size_t row = 0; row < rows.size(); ++row)
    for (std::size_t i = 0; i < width; ++i) sums_[row][i] += numbers[row * width + i];
}

void HeldOutScores::add_classes(const torch::Tensor& logits, const torch::Tensor& labels) {
  const std::int64_t classes = logits.size(-1);
  const torch::Tensor counted = labels != kNotCounted, predictions = logits.argmax(-1);
  const torch::Tensor truth = labels.masked_select(counted), guess = predictions.masked_select(counted);
  const auto count = [&](const torch::Tensor& of) { return torch::bincount(of, {}, classes).to(torch::kFloat64); };
  add_rows({count(truth.masked_select(truth == guess)), count(guess), count(truth)});
}

void HeldOutScores::add_several(const torch::Tensor& logits, const torch::Tensor& labels) {
  const torch::Tensor guess = logits > 0, truth = labels.view_as(logits) > 0.5;
  const auto count = [](const torch::Tensor& of) { return of.flatten(0, -2).sum(0).to(torch::kFloat64); };
  const torch::Tensor right = (guess == truth).all(-1).sum().to(torch::kFloat64);
  add_rows({count(guess & truth), count(guess), count(truth), right.expand({logits.size(-1)}).contiguous(),
            torch::full_like(right, logits.numel() / logits.size(-1)).expand({logits.size(-1)}).contiguous()});
}

void HeldOutScores::add_numbers(const torch::Tensor& logits, const torch::Tensor& labels) {
  const torch::Tensor x = logits.detach().to(torch::kFloat64).flatten(0, -2),
                      y = labels.to(torch::kFloat64).reshape(x.sizes());
  const torch::Tensor mean_x = x.mean(0), mean_y = y.mean(0), from_x = x - mean_x, from_y = y - mean_y;
  const auto numbers =
      read_back({mean_x, mean_y, (from_x * from_x).sum(0), (from_y * from_y).sum(0), (from_x * from_y).sum(0)});
  const auto width = static_cast<std::size_t>(x.size(1)), rows = static_cast<std::size_t>(x.size(0));
  moments_.resize(width);
  for (std::size_t i = 0; i < width; ++i) {
    const auto row = [&](std::size_t index) { return numbers[index * width + i]; };
    moments_[i] = merged(moments_[i], {static_cast<double>(rows), row(0), row(1), row(2), row(3), row(4)});
  }
}

void HeldOutScores::add_spans(const torch::Tensor& logits, const TensorDict& batch) {
  const std::int64_t tokens = logits.size(1);
  const auto places = [&](const char* name) { return batch.at(name).to(logits.device(), torch::kInt64); };
  const torch::Tensor start = places("start_positions"), end = places("end_positions");
  const torch::Tensor best = span_sums(logits, batch).flatten(1).argmax(1);
  const torch::Tensor from = torch::floor_divide(best, tokens), to = best.remainder(tokens);
  const torch::Tensor shared = (torch::minimum(to, end) - torch::maximum(from, start) + 1).clamp_min(0);
  const torch::Tensor f1 = 2.0 * shared.to(torch::kFloat64) / (to - from + 1 + end - start + 1).to(torch::kFloat64);
  const torch::Tensor counted = (start >= 0) & (end >= start) & (end < tokens);
  const torch::Tensor right = (from == start) & (to == end) & counted;
  add_rows({right.sum(), f1.masked_select(counted).sum(), counted.sum()});
}

HeldOutScores::Means HeldOutScores::over(const ProcessGroupMesh& mesh) const {
  // Stages without logits get the number of classes or outputs from the others.
  const std::size_t own = sums_.empty() ? moments_.size() : sums_[0].size();
  const auto width =
      static_cast<std::int64_t>(all_reduce_number(mesh.world_group(), static_cast<double>(own), ReduceOp::kMax));
  if (predictions_ == Predictions::kNumbers) return width == 0 ? Means() : Means{.pearson = pearson_over(mesh, width)};
  torch::Tensor sums = torch::zeros({kMostRows, width}, torch::kFloat64);
  if (speaks(mesh))
    for (std::size_t row = 0; row < sums_.size(); ++row)
      std::copy(sums_[row].begin(), sums_[row].end(), sums.data_ptr<double>() + static_cast<std::int64_t>(row) * width);
  mesh.world_group().all_reduce(sums).wait();
  return width == 0 ? Means() : means_of(sums.const_data_ptr<double>(), width);
}

// The moments are merged in the order of the ranks, so all ranks have the same result.
double HeldOutScores::pearson_over(const ProcessGroupMesh& mesh, std::int64_t width) const {
  torch::Tensor mine = torch::zeros({width, kMoments}, torch::kFloat64);
  if (speaks(mesh) && !moments_.empty())
    std::memcpy(mine.data_ptr(), moments_.data(), moments_.size() * sizeof(Moments));
  const int ranks = mesh.world_group().size();
  const torch::Tensor all =
      all_gather_along(mesh.world_group(), mine, 0, Sizes(static_cast<std::size_t>(ranks), width)).contiguous();
  const auto* of_rank = static_cast<const Moments*>(all.const_data_ptr());
  double sum = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    Moments output;
    for (int rank = 0; rank < ranks; ++rank) output = merged(output, of_rank[rank * width + i]);
    sum += correlation(output);
  }
  return sum / static_cast<double>(width);
}

HeldOutScores::Means HeldOutScores::means_of(const double* sums, std::int64_t width) const {
  const auto row = [&](std::int64_t index) { return sums + index * width; };
  if (predictions_ == Predictions::kSpans)
    return {.accuracy = share_of(*row(0), *row(2)), .f1 = share_of(*row(1), *row(2))};
  const double f1 = macro_f1(row(0), row(1), row(2), width).value_or(0);
  if (predictions_ == Predictions::kSeveralLabels) return {.accuracy = share_of(*row(3), *row(4)), .f1 = f1};
  return {.accuracy = share_of(std::accumulate(row(0), row(1), 0.0), std::accumulate(row(2), row(3), 0.0)), .f1 = f1};
}

}  // namespace gantry

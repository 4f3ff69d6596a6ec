#include "gantry/plugins/step_counts.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using Numbers = std::array<std::int64_t, 9>;

Numbers numbers_of(const RankCounts& counts) {
  return {counts.replica,      counts.samples, counts.tokens, counts.labels, counts.images,
          counts.microbatches, counts.trains,  counts.syncs,  counts.adds};
}

void refuse_different_calls(const std::vector<RankCounts>& ranks) {
  const RankCounts& first = ranks.front();
  for (const RankCounts& each : ranks) {
    const auto refuse = [&](const char* what, const char* remedy) {
      throw UsageError({"execute_pipeline",
                        fmt::format("only some ranks {}, for example only one of replica {} and replica {}", what,
                                    first.replica, each.replica),
                        "the same call on all ranks", remedy});
    };
    if (each.trains != first.trains)
      refuse("train", "pass the same forward_only, and an optimizer to boost(), on all ranks");
    if (each.syncs != first.syncs) refuse("call it under no_sync()", "hold a no_sync() guard on all ranks or on none");
    if (each.adds != first.adds)
      refuse("add to the gradients of earlier calls", "call zero_grad() on all ranks, also after an exception");
  }
}

}  // namespace

std::int64_t known_labels(const Criterion& criterion, const TensorDict& batch) {
  if (!criterion.labelled()) return criterion.counted(batch).value_or(-1);  // a function of the program
  const torch::Tensor labels = batch.get(criterion.labelled()->labels);
  if (!labels.defined() || !labels.is_cpu()) return -1;
  return criterion.counted(batch).value_or(-1);
}

std::int64_t known_images(const TensorDict& batch) {
  const torch::Tensor pixels = batch.get("pixel_values");
  if (!pixels.defined() || !pixels.is_cpu()) return -1;
  for (const char* sizes : {"image_grid_thw", "image_sizes"})
    if (const torch::Tensor each = batch.get(sizes); each.defined())
      return each.is_cpu() ? (each > 0).all(-1).sum().item<std::int64_t>() : -1;
  if (pixels.dim() == 4) return pixels.size(0);
  if (pixels.dim() != 5) return -1;
  return (pixels.select(3, 0) != 0).flatten(2).any(-1).sum().item<std::int64_t>();
}

std::vector<RankCounts> exchange_counts(const RankCounts& mine, const ProcessGroupMesh& mesh) {
  ProcessGroup& group = mesh.batch_group_and(axis::kPipeline);
  if (group.size() == 1) return {mine};
  Numbers numbers = numbers_of(mine);
  const auto width = static_cast<std::int64_t>(numbers.size());
  const torch::Tensor sent = torch::from_blob(numbers.data(), {width}, torch::kInt64).clone();
  torch::Tensor all = torch::empty({group.size() * width}, torch::kInt64);
  group.all_gather(all, sent, Sizes(group.size(), width)).wait();
  std::vector<RankCounts> ranks;
  const auto* next = all.const_data_ptr<std::int64_t>();
  for (int rank = 0; rank < group.size(); ++rank, next += width)
    ranks.push_back({next[0], next[1], next[2], next[3], next[4], next[5], next[6], next[7], next[8]});
  return ranks;
}

StepCounts combine_counts(const std::vector<RankCounts>& ranks, std::int64_t replica) {
  refuse_different_calls(ranks);
  std::map<std::int64_t, RankCounts> replicas;
  for (const RankCounts& rank : ranks) {
    RankCounts& known = replicas.emplace(rank.replica, rank).first->second;
    if (known.samples != rank.samples)
      throw InputError(
          {"batch",
           fmt::format("ranks of replica {} have {} and {} samples", rank.replica, known.samples, rank.samples),
           "the same samples on all ranks of a replica", "read the batch by the coordinate along dp"});
    known.tokens = std::max(known.tokens, rank.tokens);
    known.labels = std::max(known.labels, rank.labels);
    known.images = std::max(known.images, rank.images);
  }
  StepCounts counts{.tokens_per_sample = replicas.at(replica).tokens,
                    .is_exact = true,
                    .most_microbatches = replicas.at(replica).microbatches};
  std::int64_t expected = 0;
  for (const auto& [number, each] : replicas) {
    if (number < replica) counts.first_sample += each.samples;
    counts.global_samples += each.samples;
    counts.images += std::max<std::int64_t>(0, each.images);
    counts.is_exact = counts.is_exact && each.labels >= 0;
    expected += each.labels >= 0 ? each.labels : each.samples * std::max<std::int64_t>(1, each.tokens);
    counts.equal_microbatches = counts.equal_microbatches && each.microbatches == replicas.at(replica).microbatches;
    counts.most_microbatches = std::max(counts.most_microbatches, each.microbatches);
  }
  counts.expected = static_cast<double>(std::max<std::int64_t>(1, expected));
  return counts;
}

}  // namespace gantry

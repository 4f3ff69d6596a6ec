#include "gantry/data/loader.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <torch/torch.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

std::int64_t width_of(const std::vector<SampleEntry>& entries, NumberType type) {
  std::int64_t width = 0;
  for (const auto& entry : entries)
    if (entry.type == type) width = std::max(width, entry.first + std::max<std::int64_t>(1, entry.length));
  return width;
}

std::string describe(const std::vector<SampleEntry>& entries) {
  std::vector<std::string> parts;
  for (const auto& entry : entries)
    parts.push_back(fmt::format("{} {}{}+{}{}", entry.name, entry.type == NumberType::kReal ? "reals " : "",
                                entry.first, entry.length,
                                entry.shape.empty() ? "" : fmt::format(" [{}]", fmt::join(entry.shape, ", "))));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void require_shapes(const std::vector<SampleEntry>& entries) {
  for (const auto& entry : entries) {
    std::int64_t elements = 1;
    for (const std::int64_t size : entry.shape) elements *= size;
    if (!entry.shape.empty() && elements != entry.length)
      throw UsageError({"loader",
                        fmt::format("entry '{}' has {} numbers and the shape [{}]", entry.name, entry.length,
                                    fmt::join(entry.shape, ", ")),
                        fmt::format("a length of {}", elements), "make SampleEntry::length the product of its shape"});
  }
}

void require_alike(const SampleSource& source, const Dataset& dataset) {
  const std::string expected = describe(source.entries), got = describe(dataset.entries());
  if (got != expected || dataset.sequence_length() != source.sequence_length)
    throw UsageError({"loader", fmt::format("a dataset of {} ({} tokens)", got, dataset.sequence_length()),
                      fmt::format("{} ({} tokens)", expected, source.sequence_length),
                      "blend datasets of one kind and length"});
}

}  // namespace

Loader::Loader(const SampleSource& source, const LoaderOptions& options)
    : entries_(source.entries),
      sequence_length_(source.sequence_length),
      integers_(width_of(source.entries, NumberType::kInteger)),
      reals_(width_of(source.entries, NumberType::kReal)),
      options_(options) {
  require_shapes(entries_);
  if (!options_.reads) return;
  datasets_ = source.open();
  std::vector<SampledSource> sampled;
  for (const auto& [dataset, weight] : datasets_) {
    require_alike(source, *dataset);
    sampled.push_back({dataset->size(), weight});
    samples_ += dataset->size();
  }
  sampler_.emplace(sampled, options_.shuffle, options_.seed);
}

Loader::Numbers Loader::read(std::int64_t first, std::int64_t count) const {
  const auto device = options_.reads ? torch::kCPU : torch::kMeta;
  Numbers numbers{torch::empty({count, integers_}, torch::dtype(torch::kInt64).device(device)),
                  torch::empty({count, reals_}, torch::dtype(torch::kFloat32).device(device))};
  if (!options_.reads) return numbers;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [source, sample] = sampler_->sample(first + i);
    const Dataset& dataset = *datasets_[static_cast<std::size_t>(source)].dataset;
    if (integers_ > 0) dataset.read(sample, numbers.integers.data_ptr<std::int64_t>() + i * integers_);
    if (reals_ > 0) dataset.read_reals(sample, numbers.reals.data_ptr<float>() + i * reals_);
  }
  return numbers;
}

Batch Loader::batch(std::int64_t first, std::int64_t count) const {
  const auto pieces = split_evenly(count, options_.replicas);
  const auto replica = static_cast<std::size_t>(options_.replica);
  const auto [begin, end] = replica < pieces.size() ? pieces[replica] : std::pair(count, count);
  const Numbers all = read(first + begin, end - begin);
  Batch batch;
  for (const auto& entry : entries_) {
    const torch::Tensor& numbers = entry.type == NumberType::kReal ? all.reals : all.integers;
    torch::Tensor part =
        entry.length > 0 ? numbers.narrow(1, entry.first, entry.length) : numbers.select(1, entry.first);
    if (!entry.shape.empty()) part = part.unflatten(1, entry.shape);
    batch.tensors.set(entry.name, part.contiguous());
  }
  batch.samples = end - begin;
  batch.first_sample = begin;
  batch.global_samples = count;
  batch.tokens_per_sample = sequence_length_;
  return batch;
}

}  // namespace gantry

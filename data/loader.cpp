#include "gantry/data/loader.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/core/base/parallel_for.h"
#include "gantry/core/error.h"
#include "gantry/data/collate_samples.h"
#include "gantry/data/drawn_dataset.h"
#include "gantry/data/sample_dataset.h"
#include "gantry/data/sample_numbers.h"
#include "gantry/data/scalar_type.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

std::string describe_entries(const std::vector<SampleEntry>& entries) {
  std::vector<std::string> parts;
  for (const auto& entry : entries)
    parts.push_back(fmt::format("{} {} {}+{}{}", entry.name, facts_of(entry.type).name, entry.first, entry.length,
                                entry.shape.empty() ? "" : fmt::format(" [{}]", fmt::join(entry.shape, ", "))));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void require_shapes(const std::vector<SampleEntry>& entries) {
  for (const auto& entry : entries) {
    std::int64_t elements = 1;
    for (const std::int64_t size : entry.shape) elements *= size;
    if (!entry.shape.empty() && elements != entry.length)
      throw UsageError({"loader",
                        fmt::format("entry '{}' has {} numbers, but the shape [{}]", entry.name, entry.length,
                                    fmt::join(entry.shape, ", ")),
                        fmt::format("a length of {}", elements),
                        "set SampleEntry::length to the product of its shape"});
  }
}

void require_equal(const SampleSource& source, const Dataset& dataset) {
  const std::string expected = describe_entries(source.entries), got = describe_entries(dataset.entries());
  if (got != expected || dataset.sequence_length() != source.sequence_length)
    throw UsageError({"loader", fmt::format("a dataset has {} ({} tokens)", got, dataset.sequence_length()),
                      fmt::format("{} ({} tokens)", expected, source.sequence_length),
                      "blend datasets with the same entries and length"});
}

}  // namespace

Loader::Loader(const SampleSource& source, const LoaderOptions& options, const OpenProgress& progress)
    : entries_(source.entries),
      sequence_length_(source.sequence_length),
      widths_(widths_of(source.entries)),
      options_(options) {
  require_shapes(entries_);
  if (!options_.reads) return;
  datasets_ = source.open(progress);
  std::vector<SampledSource> sampled;
  for (const auto& [dataset, weight] : datasets_) {
    require_equal(source, *dataset);
    sampled.push_back({dataset->size(), weight});
    samples_ += dataset->size();
  }
  sampler_.emplace(sampled, options_.shuffle, options_.seed);
}

std::vector<std::string> Loader::summaries() const {
  std::vector<std::string> all;
  for (const auto& each : datasets_)
    if (std::string text = each.dataset->summary(); !text.empty()) all.push_back(std::move(text));
  return all;
}

torch::Tensor Loader::read(std::int64_t first, std::int64_t count, NumberType type, std::int64_t width) const {
  const auto options = torch::dtype(scalar_type_of(type)).device(options_.reads ? torch::kCPU : torch::kMeta);
  torch::Tensor numbers = torch::empty({count, width}, options);
  if (!options_.reads || width == 0) return numbers;
  auto* bytes = static_cast<std::byte*>(numbers.data_ptr());
  const std::size_t row_bytes = static_cast<std::size_t>(width) * facts_of(type).bytes;
  parallel_for(static_cast<std::size_t>(count), threads(), [&](std::size_t i) {
    read_numbers(first + static_cast<std::int64_t>(i), {type, bytes + i * row_bytes});
  });
  return numbers;
}

void Loader::read_numbers(std::int64_t place, const NumberRow& row) const {
  const auto [source, sample] = sampler_->sample(place);
  const Dataset& dataset = *datasets_[static_cast<std::size_t>(source)].dataset;
  if (const auto* drawn = dynamic_cast<const DrawnDataset*>(&dataset))
    drawn->read_at(sample, place, row);
  else
    dataset.read_numbers(sample, row);
}

TensorDict Loader::read_tensors(std::int64_t place) const {
  const auto [source, sample] = sampler_->sample(place);
  const Dataset& dataset = *datasets_[static_cast<std::size_t>(source)].dataset;
  if (const auto* samples = dynamic_cast<const SampleDataset*>(&dataset)) return samples->sample(sample);
  return sample_of(entries_, [&](const NumberRow& row) { read_numbers(place, row); });
}

std::size_t Loader::threads() const {
  const bool is_slow = std::ranges::any_of(datasets_, [](const auto& each) { return each.dataset->is_slow(); });
  return is_slow ? static_cast<std::size_t>(options_.workers) : 1;
}

// A replica without samples gets the entries of a batch of one.
TensorDict Loader::collated(std::int64_t first, std::int64_t count) const {
  std::vector<TensorDict> samples(static_cast<std::size_t>(std::max<std::int64_t>(1, count)));
  parallel_for(samples.size(), threads(),
               [&](std::size_t i) { samples[i] = read_tensors(first + static_cast<std::int64_t>(i)); });
  TensorDict made = collate_samples(options_.collate, samples);
  for (auto& [name, tensor] : made) tensor = tensor.narrow(0, 0, count);
  return made;
}

Batch Loader::batch(std::int64_t first, std::int64_t count) const {
  const auto pieces = split_evenly(count, options_.replicas);
  const auto replica = static_cast<std::size_t>(options_.replica);
  const auto [begin, end] = replica < pieces.size() ? pieces[replica] : std::pair(count, count);
  Batch batch;
  if (options_.collate) {
    batch.tensors = collated(first + begin, end - begin);
  } else {
    std::map<NumberType, torch::Tensor> rows;
    for (const auto& [type, width] : widths_) rows[type] = read(first + begin, end - begin, type, width);
    batch.tensors = tensors_of(entries_, rows);
    batch.tokens_per_sample = sequence_length_;
  }
  batch.samples = end - begin;
  batch.first_sample = begin;
  batch.global_samples = count;
  return batch;
}

}  // namespace gantry

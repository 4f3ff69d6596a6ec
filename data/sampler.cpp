#include "gantry/data/sampler.h"

#include <bit>
#include <utility>

#include "gantry/tensors/philox.h"

namespace gantry {
namespace {

std::vector<double> weights_of(const std::vector<SampledSource>& sources) {
  std::vector<double> weights;
  for (const auto& source : sources) weights.push_back(source.weight);
  return weights;
}

// Returns a different seed for each source, because sources of the same size would otherwise be shuffled
// identically. The first source has the run's seed.
std::uint64_t seed_of(std::uint64_t seed, std::uint64_t source) {
  constexpr std::uint64_t kSpread = 0x9E3779B97F4A7C15;
  return seed + source * kSpread;
}

}  // namespace

Permutation::Permutation(std::int64_t size, std::uint64_t seed, std::uint64_t epoch)
    : size_(static_cast<std::uint64_t>(size)),
      seed_(seed),
      epoch_(epoch),
      half_bits_((static_cast<int>(std::bit_width(size_ > 1 ? size_ - 1 : 1)) + 1) / 2) {}

std::int64_t Permutation::operator()(std::int64_t index) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = value >> half_bits_, right = value & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const auto words = philox({seed_, philox_stream("sampler", epoch_ * 4 + round)}, right);
      const std::uint64_t mixed = (static_cast<std::uint64_t>(words[0]) << 32 | words[1]) & mask;
      left = std::exchange(right, left ^ mixed);
    }
    value = left << half_bits_ | right;
  } while (value >= size_);
  return static_cast<std::int64_t>(value);
}

std::int64_t Sampler::sample(std::int64_t position) const {
  const std::int64_t epoch = position / size_, index = position % size_;
  return shuffle_ ? Permutation(size_, seed_, static_cast<std::uint64_t>(epoch))(index) : index;
}

BlendedSampler::BlendedSampler(const std::vector<SampledSource>& sources, bool shuffle, std::uint64_t seed)
    : blend_(weights_of(sources)) {
  for (std::size_t i = 0; i < sources.size(); ++i) samplers_.emplace_back(sources[i].size, shuffle, seed_of(seed, i));
}

SourceSample BlendedSampler::sample(std::int64_t position) const {
  const BlendedItem item = blend_.item(position);
  return {item.source, samplers_[static_cast<std::size_t>(item.source)].sample(item.index)};
}

std::vector<std::int64_t> DistributedSampler::indices() const {
  const std::int64_t size = options_.dataset_size, replicas = options_.replicas;
  const std::int64_t each = options_.drop_last ? size / replicas : (size + replicas - 1) / replicas;
  const Permutation order(size, options_.seed, static_cast<std::uint64_t>(epoch_));
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < each; ++i) {
    const std::int64_t position = (i * replicas + options_.replica) % size;
    indices.push_back(options_.shuffle ? order(position) : position);
  }
  return indices;
}

}  // namespace gantry

#include "gantry/models/described/outlined_layer.h"

#include <algorithm>

#include "gantry/core/axis.h"
#include "gantry/core/error.h"

namespace gantry::models {
namespace {

constexpr std::int64_t kMostRanks = 1024;

// True if every sharded parameter has a part for each of `ranks` ranks.
bool can_shard(const OutlinedSizes& sizes, int ranks) {
  try {
    for (const ModuleShard& rule : sizes.shards)
      for (const ParameterShape& parameter : sizes.parameters)
        if (parameter.name.starts_with(rule.path + "."))
          split_of(rule.style, parameter.shape, {{axis::kTensor, ranks}});
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

}  // namespace

bool operator==(const OutlinedSizes& one, const OutlinedSizes& other) {
  const auto are_equal = [](const ParameterShape& a, const ParameterShape& b) {
    return a.name == b.name && a.shape == b.shape && a.used == b.used;
  };
  const auto have_one_rule = [](const ModuleShard& a, const ModuleShard& b) {
    return a.path == b.path && describe(a.style) == describe(b.style);
  };
  return std::ranges::equal(one.parameters, other.parameters, are_equal) &&
         std::ranges::equal(one.shards, other.shards, have_one_rule);
}

std::int64_t OutlinedLayer::largest_tensor() const {
  std::int64_t ranks = 1;
  while (ranks < kMostRanks && can_shard(sizes, static_cast<int>(ranks) + 1)) ++ranks;
  return ranks;
}

std::int64_t OutlinedLayer::largest_context(std::int64_t) const { return sizes.shares_sequences ? kMostRanks : 1; }

// The outputs of matrices are written and read once by whatever follows.
MixerWork OutlinedLayer::work() const {
  MixerWork work;
  for (const ParameterShape& parameter : sizes.parameters)
    if (parameter.shape.size() == 2) work.moved += 2 * static_cast<double>(parameter.shape.front());
  return work;
}

}  // namespace gantry::models

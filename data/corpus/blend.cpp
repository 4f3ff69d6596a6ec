#include "gantry/data/corpus/blend.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <queue>

#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr double kOne = 9223372036854775808.0;  // 2^63
constexpr int kShift = 63;

}  // namespace

Blend::Blend(const std::vector<double>& weights) : sources_(static_cast<int>(weights.size())) {
  double most = 0;
  for (std::size_t source = 0; source < weights.size(); ++source) {
    if (!std::isfinite(weights[source]) || weights[source] < 0)
      throw ConfigError({fmt::format("weight {} of the sources", source),
                         fmt::format("the weight is {}", weights[source]), "a number from 0", ""});
    most = std::max(most, weights[source]);
  }
  // Weights relative to the largest one have a finite sum.
  for (int source = 0; source < sources_; ++source)
    if (weights[source] / most > 0) nodes_.push_back({.weight = weights[source] / most, .source = source});
  if (nodes_.empty())
    throw ConfigError({"weights of the sources", fmt::format("none of the {} weights is above 0", weights.size()),
                       "at least one positive weight", ""});
  // Among equal weights, the earlier node is taken first, so that the tree depends only on the weights.
  const auto later = [&](int a, int b) {
    return nodes_[a].weight != nodes_[b].weight ? nodes_[a].weight > nodes_[b].weight : a > b;
  };
  std::priority_queue<int, std::vector<int>, decltype(later)> open(later);
  for (int node = 0; node < static_cast<int>(nodes_.size()); ++node) open.push(node);
  while (open.size() > 1) {
    const int lighter = open.top();
    open.pop();
    const int heavier = open.top();
    open.pop();
    const double heavy = nodes_[heavier].weight, all = heavy + nodes_[lighter].weight;
    const double share = heavy / all;
    nodes_.push_back(
        {.weight = all, .left = heavier, .right = lighter, .part = static_cast<std::uint64_t>(share * kOne)});
    open.push(static_cast<int>(nodes_.size()) - 1);
  }
}

std::int64_t Blend::Node::count_left(std::int64_t items) const {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::int64_t>((static_cast<Wide>(items) * part + (Wide{1} << (kShift - 1))) >> kShift);
}

BlendedItem Blend::item(std::int64_t position) const {
  const Node* node = &nodes_.back();
  while (node->left >= 0) {
    const std::int64_t before = node->count_left(position);
    const bool goes_left = node->count_left(position + 1) > before;
    position = goes_left ? before : position - before;
    node = &nodes_[goes_left ? node->left : node->right];
  }
  return {node->source, position};
}

std::vector<std::int64_t> Blend::counts(std::int64_t items) const {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(sources_));
  add_counts(static_cast<int>(nodes_.size()) - 1, items, counts);
  return counts;
}

void Blend::add_counts(int node, std::int64_t items, std::vector<std::int64_t>& counts) const {
  const Node& here = nodes_[node];
  if (here.left < 0) {
    counts[static_cast<std::size_t>(here.source)] = items;
    return;
  }
  const std::int64_t left = here.count_left(items);
  add_counts(here.left, left, counts);
  add_counts(here.right, items - left, counts);
}

}  // namespace gantry

#include "gantry/data/tokenizers/merge_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <queue>

namespace gantry {
namespace {

constexpr std::size_t kShort = 48;  // symbols; below, scanning beats a queue

std::uint64_t mix(std::uint64_t value) {  // the finaliser of MurmurHash3
  value = (value ^ (value >> 33)) * 0xFF51AFD7ED558CCDu;
  value = (value ^ (value >> 33)) * 0xC4CEB9FE1A85EC53u;
  return value ^ (value >> 33);
}

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(const std::vector<Merge>& merges) : slots_(std::bit_ceil(2 * merges.size() + 2)) {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::uint64_t pair = pair_of(merges[rank].left, merges[rank].right);
    std::size_t at = mix(pair) & mask;
    while (slots_[at].pair != kEmpty && slots_[at].pair != pair) at = (at + 1) & mask;
    slots_[at] = {pair, {static_cast<std::int32_t>(rank), merges[rank].result}};
  }
}

MergeTable::Ranked MergeTable::lookup(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = pair_of(left, right);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = mix(pair) & mask; slots_[at].pair != kEmpty; at = (at + 1) & mask)
    if (slots_[at].pair == pair) return slots_[at].ranked;
  return {};
}

// For few symbols: finds the lowest rank among all pairs, merges the pair, and looks up the two new pairs.
void MergeTable::merge_short(std::vector<std::int32_t>& symbols) const {
  std::array<Ranked, kShort> ranked;
  std::size_t size = symbols.size();
  for (std::size_t i = 0; i + 1 < size; ++i) ranked[i] = lookup(symbols[i], symbols[i + 1]);
  while (size > 1) {
    const auto end = ranked.begin() + static_cast<std::ptrdiff_t>(size) - 1;
    const auto lowest =
        std::min_element(ranked.begin(), end, [](const Ranked& a, const Ranked& b) { return a.rank < b.rank; });
    if (lowest->rank == kLast) break;
    const auto at = static_cast<std::size_t>(lowest - ranked.begin());
    symbols[at] = lowest->result;
    std::copy(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 2,
              symbols.begin() + static_cast<std::ptrdiff_t>(size),
              symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    if (lowest + 1 < end) std::copy(lowest + 2, end, lowest + 1);
    --size;
    if (at + 1 < size) ranked[at] = lookup(symbols[at], symbols[at + 1]);
    if (at > 0) ranked[at - 1] = lookup(symbols[at - 1], symbols[at]);
  }
  symbols.resize(size);
}

// For many symbols: a linked list of the symbols, and a queue of pairs. Outdated entries of the queue are
// skipped.
void MergeTable::merge_long(std::vector<std::int32_t>& symbols) const {
  struct Candidate {
    std::int32_t rank;
    std::uint32_t at;
    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  const auto size = static_cast<std::uint32_t>(symbols.size());
  std::vector<std::uint32_t> next(size), previous(size);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](std::uint32_t at) {
    const Ranked ranked = next[at] < size ? lookup(symbols[at], symbols[next[at]]) : Ranked{};
    if (ranked.rank != kLast) queue.push({ranked.rank, at});
  };
  for (std::uint32_t i = 0; i < size; ++i) next[i] = i + 1, previous[i] = i - 1;
  for (std::uint32_t i = 0; i < size; ++i) consider(i);
  for (; !queue.empty();) {
    const auto [rank, at] = queue.top();
    queue.pop();
    if (symbols[at] == kNone || next[at] >= size) continue;
    const Ranked now = lookup(symbols[at], symbols[next[at]]);
    if (now.rank != rank) continue;
    symbols[at] = now.result;
    symbols[next[at]] = kNone;
    next[at] = next[next[at]];
    if (next[at] < size) previous[next[at]] = at;
    consider(at);
    if (at > 0) consider(previous[at]);
  }
  std::erase(symbols, kNone);
}

void MergeTable::merge(std::vector<std::int32_t>& symbols) const {
  symbols.size() <= kShort ? merge_short(symbols) : merge_long(symbols);
}

}  // namespace gantry

// Byte-pair encoding: a table of merges, applied to symbols with the lowest rank first (Sennrich et al. 2016).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace gantry {

struct TokenHash : std::hash<std::string_view> {
  using is_transparent = void;
};
using TokenTable = std::unordered_map<std::string, std::int32_t, TokenHash, std::equal_to<>>;

struct Merge {
  std::int32_t left = 0, right = 0, result = 0;  // token ids
};

class MergeTable {
 public:
  // Merge i has rank i. If a pair occurs several times, the last one counts.
  explicit MergeTable(const std::vector<Merge>& merges);

  // Merges symbols, which are token ids, until no neighbours have a merge.
  void merge(std::vector<std::int32_t>& symbols) const;

 private:
  static constexpr std::int32_t kNone = -1;
  static constexpr std::int32_t kLast = 0x7FFFFFFF;  // rank of a pair without a merge
  struct Ranked {
    std::int32_t rank = kLast, result = kNone;
  };
  struct Slot {
    std::uint64_t pair = kEmpty;
    Ranked ranked;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

  Ranked lookup(std::int32_t left, std::int32_t right) const;
  void merge_short(std::vector<std::int32_t>& symbols) const;
  void merge_long(std::vector<std::int32_t>& symbols) const;

  std::vector<Slot> slots_;  // open addressing; a power of two, at most half full
};

}  // namespace gantry

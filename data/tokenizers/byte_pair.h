// Byte-pair encoding of a piece of bytes by a table of merges (Sennrich et al. 2016), the lowest rank first.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

struct TokenHash : std::hash<std::string_view> {
  using is_transparent = void;
};
using TokenTable = std::unordered_map<std::string, std::int32_t, TokenHash, std::equal_to<>>;

struct Merge {
  std::int32_t left = 0, right = 0, result = 0;  // token ids
};

// The ids of recent pieces, each in the one place that its hash gives it: text repeats its words. For one thread.
class PieceCache {
 public:
  PieceCache();
  struct Entry {
    static constexpr std::size_t kMostBytes = 27, kMostIds = 8;
    std::uint8_t bytes = 0, ids = 0;
    std::array<char, kMostBytes> piece{};
    std::array<std::int32_t, kMostIds> id{};
  };
  static bool takes(std::string_view piece) { return piece.size() <= Entry::kMostBytes; }
  Entry& entry(std::string_view piece);

 private:
  std::vector<Entry> entries_;
};

class BytePair {
 public:
  static constexpr std::int32_t kNone = -1;

  // bytes[b] is the token of byte b, or kNone. Merge i has rank i; of equal pairs the last counts. `whole` gives the
  // pieces that are a token without any merging (ignore_merges), empty for none.
  BytePair(const std::array<std::int32_t, 256>& bytes, const std::vector<Merge>& merges, TokenTable whole);

  // Appends the ids of a piece. `cache` may be null. InputError for a byte without a token.
  void append(std::string_view piece, PieceCache* cache, TokenIds& ids) const;
  // Merges symbols, which are tokens, until none is left that does.
  void merge(std::vector<std::int32_t>& symbols) const;

 private:
  struct Ranked {
    std::int32_t rank = kLast, result = kNone;
  };
  static constexpr std::int32_t kLast = 0x7FFFFFFF;  // of a pair that does not merge
  struct Slot {
    std::uint64_t pair = kEmpty;
    Ranked ranked;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

  Ranked lookup(std::int32_t left, std::int32_t right) const;
  void merge_short(std::vector<std::int32_t>& symbols) const;
  void merge_long(std::vector<std::int32_t>& symbols) const;
  std::vector<std::int32_t> merged(std::string_view piece) const;

  std::array<std::int32_t, 256> bytes_;
  std::vector<Slot> slots_;  // open addressing, a power of two of them, at most half full
  TokenTable whole_;
};

}  // namespace gantry

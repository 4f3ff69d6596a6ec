// The ids of recent pieces: text repeats its words. For one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

class PieceCache {
 public:
  PieceCache() : entries_(kEntries) {}

  // Appends the ids of `piece`, which `encode(piece, ids)` appends if the cache does not have them.
  template <class Encode>
  void append(std::string_view piece, TokenIds& ids, const Encode& encode) {
    if (piece.size() > Entry::kMostBytes) return encode(piece, ids);
    Entry& entry = entries_[std::hash<std::string_view>{}(piece) % kEntries];
    if (std::string_view(entry.piece.data(), entry.bytes) == piece) {
      ids.insert(ids.end(), entry.id.begin(), entry.id.begin() + entry.ids);
      return;
    }
    const std::size_t before = ids.size();
    encode(piece, ids);
    if (ids.size() - before > Entry::kMostIds) return;
    entry.bytes = static_cast<std::uint8_t>(piece.size());
    entry.ids = static_cast<std::uint8_t>(ids.size() - before);
    std::copy(piece.begin(), piece.end(), entry.piece.begin());
    std::transform(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end(), entry.id.begin(),
                   [](std::int64_t id) { return static_cast<std::int32_t>(id); });
  }

 private:
  static constexpr std::size_t kEntries = 1 << 16;
  // Each piece has the one place that its hash gives. An entry is one cache line.
  struct alignas(64) Entry {
    static constexpr std::size_t kMostBytes = 27, kMostIds = 8;
    std::uint8_t bytes = 0, ids = 0;
    std::array<char, kMostBytes> piece{};
    std::array<std::int32_t, kMostIds> id{};
  };
  std::vector<Entry> entries_;
};

}  // namespace gantry

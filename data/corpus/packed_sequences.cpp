#include "gantry/data/corpus/packed_sequences.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"

namespace gantry {

PackedSequences::PackedSequences(std::span<const std::int64_t> boundaries, std::int64_t sequence_length)
    : boundaries_(boundaries), length_(sequence_length), size_(0) {
  if (boundaries.empty() || sequence_length < 1)
    throw UsageError(
        {"PackedSequences",
         fmt::format("there are {} boundaries and the sequence length is {}", boundaries.size(), sequence_length),
         "at least 1 of each", ""});
  const std::int64_t tokens = boundaries.back() - boundaries.front();
  size_ = tokens > 0 ? (tokens - 1) / length_ : 0;
}

std::vector<TokenRun> PackedSequences::runs(std::int64_t sample) const {
  if (sample < 0 || sample >= size_)
    throw UsageError(
        {"PackedSequences", fmt::format("sample {} does not exist", sample), fmt::format("0 to {}", size_ - 1), ""});
  std::int64_t at = boundaries_.front() + sample * length_, left = length_ + 1;
  // Finds the last document that begins at or before the token, which skips empty documents at the same
  // position.
  auto next = std::upper_bound(boundaries_.begin(), boundaries_.end(), at);
  std::vector<TokenRun> runs;
  for (; left > 0; ++next) {
    const std::int64_t count = std::min(left, *next - at);
    if (count == 0) continue;
    const std::int64_t document = next - boundaries_.begin() - 1;
    runs.push_back({document, at - *(next - 1), count});
    at += count;
    left -= count;
  }
  return runs;
}

void require_one_sample(std::int64_t tokens, std::int64_t sequence_length, const std::string& place) {
  if (tokens > sequence_length) return;
  throw InputError({place, fmt::format("there are {} tokens", tokens),
                    fmt::format("at least sequence_length {} + 1 = {}", sequence_length, sequence_length + 1),
                    "provide more text, or reduce data.sequence_length"});
}

}  // namespace gantry

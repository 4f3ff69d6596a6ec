// Packs documents into samples of equal length, like Megatron's GPT datasets. Samples are computed from the
// positions at which documents begin.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gantry {

// Tokens [offset, offset + count) of a document.
struct TokenRun {
  std::int64_t document = 0, offset = 0, count = 0;
  bool operator==(const TokenRun&) const = default;
};

// All documents are concatenated. Sample i has the S + 1 tokens [i * S, i * S + S]: the first S are the
// input, the last S the labels. Tokens left over at the end are not used. A sample is found by binary search,
// without an index.
class PackedSequences {
 public:
  // boundaries[d]: number of tokens before document d; the last entry is the total. It is not copied and must
  // outlive this object. A subspan packs a part of the documents (for training or for evaluation), with
  // document numbers from its start. Throws UsageError without boundaries or for a sequence_length below 1.
  PackedSequences(std::span<const std::int64_t> boundaries, std::int64_t sequence_length);

  std::int64_t size() const { return size_; }  // number of samples, which may be 0
  std::int64_t sequence_length() const { return length_; }
  // Returns the runs of a sample in order, S + 1 tokens in total. No run is empty. Throws UsageError for a
  // sample outside 0 .. size() - 1.
  std::vector<TokenRun> runs(std::int64_t sample) const;

 private:
  std::span<const std::int64_t> boundaries_;
  std::int64_t length_, size_;
};

// Throws InputError that names `place` if there are fewer tokens than one sample needs.
void require_one_sample(std::int64_t tokens, std::int64_t sequence_length, const std::string& place);

}  // namespace gantry

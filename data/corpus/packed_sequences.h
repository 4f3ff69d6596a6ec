// Documents packed to samples of one length, by arithmetic on where each document begins (as Megatron's GPT datasets).
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

// All documents stand in one row; sample i is its tokens [i * S, i * S + S], S + 1 of them: the input is the first S,
// the labels the last S. What is left at the end gives no sample. Nothing is stored, a sample is found by binary
// search.
class PackedSequences {
 public:
  // boundaries[d]: tokens before document d, the last entry all of them. Not copied: it must outlive this object. A
  // subspan packs some of the documents (for training and for evaluation), whose numbers count from its start.
  // UsageError for no boundaries or a sequence_length below 1.
  PackedSequences(std::span<const std::int64_t> boundaries, std::int64_t sequence_length);

  std::int64_t size() const { return size_; }  // samples, which may be none
  std::int64_t sequence_length() const { return length_; }
  // The runs of a sample in order, none of them empty; S + 1 tokens together. UsageError outside 0 .. size() - 1.
  std::vector<TokenRun> runs(std::int64_t sample) const;

 private:
  std::span<const std::int64_t> boundaries_;
  std::int64_t length_, size_;
};

// InputError that names `place` where there are fewer tokens than one sample has.
void require_one_sample(std::int64_t tokens, std::int64_t sequence_length, const std::string& place);

}  // namespace gantry

// How a sequence lies over the ranks that share it: which token stands on which rank, in which order. One permutation
// by which tokens, labels, positions and masks are cut and outputs are put together again. Pure arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/core/shard_spec.h"

namespace gantry {

// kContiguous: one part after the other. kZigzag: of 2 * ranks chunks rank r has the r-th and the r-th from the end, so
// that ranks have equal work where a token sees those before it (Brandon et al., arXiv 2311.09431, and Llama 3, arXiv
// 2407.21783).
enum class SequenceLayout { kContiguous, kZigzag };
const char* name_of(SequenceLayout layout);  // "zigzag"

struct SequenceShard {
  std::int64_t tokens = 0;
  int ranks = 1;
  SequenceLayout layout = SequenceLayout::kContiguous;
  // So many adjacent ranks have one place of the layout together: each a part of its tokens, one after the other. It
  // divides the ranks.
  int together = 1;

  // A rank's tokens as runs of adjacent places, in the order in which it holds them; without empty ones. What ranks or
  // chunks do not divide is cut as evenly as possible, the first ones larger.
  std::vector<Range> runs(int rank) const;
  std::int64_t size(int rank) const;
  std::vector<std::int64_t> sizes() const;           // by rank
  std::vector<std::int64_t> places(int rank) const;  // of the rank's tokens in the sequence
  // The places of all ranks' tokens, rank by rank; and where in that list the token of each place stands.
  std::vector<std::int64_t> permutation() const;
  std::vector<std::int64_t> inverse() const;
  // Pairs of a rank's queries and the keys that they see where each sees itself and what is before it.
  std::int64_t causal_pairs(int rank) const;

  bool operator==(const SequenceShard&) const = default;
};

// Where those tokens of a rank stand that are [range] among the tokens that it holds, as runs; `runs` has all of them.
std::vector<Range> runs_within(const std::vector<Range>& runs, const Range& range);

// A rectangle of queries and keys, by index among those that lie on one rank, and what of it is seen: all of it, what
// lies on the diagonal or below it, or what a mask says.
struct AttentionTile {
  enum class Kind { kFull, kCausal, kMasked };
  Range queries, keys;
  Kind kind = Kind::kMasked;
  bool operator==(const AttentionTile&) const = default;
};

// The tiles in which queries with these runs see keys with those: by place alone, causal or all, with a window of so
// many tokens (0: none). They cover each pair that is seen once; what is seen by nobody is left out.
std::vector<AttentionTile> attention_tiles(const std::vector<Range>& queries, const std::vector<Range>& keys,
                                           bool causal, std::int64_t window);

}  // namespace gantry

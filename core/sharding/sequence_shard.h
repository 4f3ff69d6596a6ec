// How a sequence is sharded over the ranks that share it: which token is on which rank, in which order. Tokens, labels,
// positions and masks are sharded, and outputs gathered, with the same permutation. Pure arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/core/shard_spec.h"

namespace gantry {

// kContiguous: one part after the other. kZigzag: the sequence has 2 * ranks chunks, and rank r has chunk r and chunk r
// from the end. With causal attention all ranks then have the same amount of work (Brandon et al., arXiv 2311.09431,
// and Llama 3, arXiv 2407.21783).
enum class SequenceLayout { kContiguous, kZigzag };
const char* name_of(SequenceLayout layout);  // "zigzag"

struct SequenceShard {
  std::int64_t tokens = 0;
  int ranks = 1;
  SequenceLayout layout = SequenceLayout::kContiguous;
  // Number of adjacent ranks that share one position of the layout; each has a part of its tokens, in order. It divides
  // the number of ranks.
  int together = 1;

  // The tokens of a rank as runs of adjacent positions, in the order in which the rank holds them, without empty runs.
  // If the size does not divide evenly, the first parts are one token larger.
  std::vector<Range> runs(int rank) const;
  std::int64_t size(int rank) const;
  std::vector<std::int64_t> sizes() const;           // number of tokens by rank
  std::vector<std::int64_t> places(int rank) const;  // positions of the rank's tokens in the sequence
  // The positions of all ranks' tokens, rank by rank; and the inverse, the index in that list for each position.
  std::vector<std::int64_t> permutation() const;
  std::vector<std::int64_t> inverse() const;
  // Number of pairs of a rank's queries and the keys that they attend to, if each token attends to itself and earlier
  // ones.
  std::int64_t causal_pairs(int rank) const;

  bool operator==(const SequenceShard&) const = default;
};

// The indices of the tokens in [range] of the sequence among the tokens of the rank, as runs; `runs` has all runs of
// the rank.
std::vector<Range> runs_within(const std::vector<Range>& runs, const Range& range);

// A rectangle of queries and keys, by their index on one rank, and its visible part: all of it, the part on and below
// the diagonal, or the part that a mask selects.
struct AttentionTile {
  enum class Kind { kFull, kCausal, kMasked };
  Range queries, keys;
  Kind kind = Kind::kMasked;
  bool operator==(const AttentionTile&) const = default;
};

// The tiles in which the queries of these runs attend to the keys of those runs, by position only, causal or all. Keys
// that are `window` or more tokens apart are not visible (0: all are). The tiles cover each visible pair once;
// rectangles without visible pairs are left out.
std::vector<AttentionTile> attention_tiles(const std::vector<Range>& queries, const std::vector<Range>& keys,
                                           bool causal, std::int64_t window);

}  // namespace gantry

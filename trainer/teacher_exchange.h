// Moves data between the layouts of a student and of its teacher, which are over the same ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/core/slice.h"

namespace gantry {

// The part of a tensor that a rank holds, or needs.
struct RankBox {
  int rank = 0;
  Box box;
};

// A block that a rank has and another one needs. It may be the same rank.
struct BlockMove {
  int from = 0, to = 0;
  Block source, target;  // positions in the parts of the two ranks; the sizes are equal
  bool operator==(const BlockMove&) const = default;
};

// The moves from or to `rank` that give every rank of `needed` its part, in an order that sender and receiver share.
// No two boxes of `held` have a common element.
std::vector<BlockMove> moves_of_rank(int rank, const std::vector<RankBox>& held, const std::vector<RankBox>& needed);

// A tensor of which ranks have parts.
struct BlockExchange {
  std::vector<BlockMove> moves;  // moves_of_rank()
  std::int64_t most_rows = 0;    // the largest size of dim 0 in a block of any rank, or more
  std::int64_t row_bytes = 0;    // the same for the bytes of one row
};

// Copies the blocks of each rank's `source` to the `target` of the ranks that need them, in several messages if they
// are large. `target` gives type and device, which are those of `source`; it has no elements on ranks that need
// nothing. `source` may be undefined on ranks that hold nothing. `group`: all ranks, in the order of their numbers.
// Collective over it.
void exchange_blocks(const BlockExchange& exchange, const torch::Tensor& source, torch::Tensor& target,
                     ProcessGroup& group);

}  // namespace gantry

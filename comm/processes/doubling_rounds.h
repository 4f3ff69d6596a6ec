// The rounds of a dissemination among the ranks of a group, without communication: after each round a rank holds twice
// as many blocks. The sources: Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization" (1988); Bruck
// et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems" (1997).
#pragma once

#include <algorithm>

namespace gantry {

// Block i of a rank comes from the rank i places before it; block 0 is its own. In a round the rank sends its first
// `blocks` blocks to `to`, and receives as many from `from`, which follow the `held` ones it has.
struct DoublingRound {
  int to, from;
  int held, blocks;
};

// Calls `take` for each of the ceil(log2(size)) rounds, which have one message in each direction.
template <class Take>
void visit_doubling_rounds(int rank, int size, const Take& take) {
  for (int held = 1; held < size; held *= 2)
    take(DoublingRound{(rank + held) % size, (rank - held + size) % size, held, std::min(held, size - held)});
}

}  // namespace gantry

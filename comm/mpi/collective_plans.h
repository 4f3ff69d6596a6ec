// Collectives as data: phases of transfers, each phase ended by sums. Free of MPI; MpiCollective carries them out.
//
// Sums are taken by rank, 0 first, on one rank for each element, so the bits are those of the local backend. Every
// transfer has a counterpart of equal size at the peer, in the same order, zero-sized ones too: a mismatch shows as a
// wrong size.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "gantry/comm/process_group.h"

namespace gantry {

struct Transfer {
  int peer;
  char* data;
  std::int64_t bytes;
};

struct Reduction {
  char* out;
  std::vector<const void*> inputs;  // by rank
  std::int64_t elements;
};

struct Phase {
  std::vector<Transfer> receives, sends;
  std::vector<Reduction> reductions;  // when all transfers of the phase are done
};

struct Plan {
  std::vector<Phase> phases;
  std::shared_ptr<char> scratch;
};

// Who plans, and how far small ways reach.
struct Member {
  int rank;
  int size;
  std::int64_t direct_bytes;
  std::int64_t segment_bytes;
};

// `data`: `elements` of `item` bytes each, in place. Small: everyone gets everything. Large: each rank sums a slice and
// passes the sum on, in segments: while one is summed the sums of the one before travel.
Plan plan_all_reduce(const Member& me, char* data, std::int64_t elements, std::int64_t item);
// Slice r of `in` has elements[r]; `out` gets this rank's sum.
Plan plan_reduce_scatter(const Member& me, char* out, char* in, const std::vector<std::int64_t>& elements,
                         std::int64_t item);
// `out` has bytes[r] from each rank, in order; this rank's own are copied by the planning.
Plan plan_all_gather(const Member& me, char* out, char* in, const std::vector<std::int64_t>& bytes);
Plan plan_all_to_all(const Member& me, char* out, char* in, const std::vector<std::int64_t>& out_bytes,
                     const std::vector<std::int64_t>& in_bytes);
// Down a binomial tree, in segments.
Plan plan_broadcast(const Member& me, char* data, std::int64_t bytes, int root);
// By dissemination: in round k rank r tells r + 2^k.
Plan plan_barrier(const Member& me);

}  // namespace gantry

// The work of a collective of rank threads, split into slices. Any thread may process a slice, directly in
// the members' memory.
#pragma once

#include <cstdint>
#include <span>

#include "gantry/comm/process_group.h"

namespace gantry {

// One member's part of a collective, in a slot. It keeps the tensors, which are contiguous, alive until every
// member has left the collective. The memory of its size lists is kept for reuse.
struct LocalEntry {
  OperationKind kind = OperationKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  torch::Tensor in, out;  // in place: only `in`
  Sizes sizes;            // all_gather, reduce_scatter; in all_to_all: rows sent to each
  Sizes out_sizes;        // in all_to_all: rows received from each

  // `own_in` and `own_out` are used in place of the call's tensors.
  void fill(const Collective& call, const torch::Tensor& own_in, const torch::Tensor& own_out);
};

// `entries`: by rank, after all members have joined with equal calls.
int count_slices(std::span<const LocalEntry> entries);
void work_on_slice(std::span<const LocalEntry> entries, std::int64_t index);

}  // namespace gantry

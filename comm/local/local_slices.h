// The work of a collective of rank threads, split into slices that any thread may process, directly in the members'
// memory.
#pragma once

#include <cstdint>
#include <span>

#include "gantry/comm/process_group.h"

namespace gantry {

// What one member brings to a collective, in a slot: it keeps the tensors, which are contiguous, alive until every
// member has left it, and its sizes' memory for ever.
struct LocalEntry {
  OperationKind kind = OperationKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  torch::Tensor in, out;  // in place: `in` alone
  Sizes sizes;            // all_gather, reduce_scatter; all_to_all: rows sent to each
  Sizes out_sizes;        // all_to_all: rows received from each

  // `own_in` and `own_out` stand for the call's tensors.
  void fill(const Collective& call, const torch::Tensor& own_in, const torch::Tensor& own_out);
};

// Of a collective that all members have joined alike; by rank.
int count_slices(std::span<const LocalEntry> entries);
void work_on_slice(std::span<const LocalEntry> entries, std::int64_t index);

}  // namespace gantry

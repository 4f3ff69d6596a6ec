// What every backend checks of a collective's arguments before it starts, so that all refuse the same calls in the same
// words.
#pragma once

#include "gantry/comm/process_group.h"

namespace gantry {

enum class CollectiveKind { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kAllToAll, kBarrier };
const char* collective_name(CollectiveKind kind);
const char* collective_label(CollectiveKind kind);  // "gantry::all_reduce", as profilers see it

// Elements of one row (dim 0 index); tensors with a zero dim 0 take it from their other dims.
std::int64_t row_elements(const torch::Tensor& tensor);

// InternalError-free: UsageError when sizes don't fit the tensors or the group.
void check_gather(const torch::Tensor& whole, const torch::Tensor& part, const Sizes& sizes, int rank, int size,
                  const char* call);
// The same of all_to_all.
void check_all_to_all(const torch::Tensor& out, const torch::Tensor& in, const Sizes& out_sizes, const Sizes& in_sizes,
                      int size);
void check_rank(int rank, int size, const char* call);

}  // namespace gantry

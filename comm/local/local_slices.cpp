#include "gantry/comm/local/local_slices.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "gantry/comm/reduce_kernels.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using Entries = std::span<const LocalEntry>;

// Small enough to balance the work and stay in the second-level cache, large enough to make the cost of
// claiming negligible.
constexpr std::int64_t kSliceBytes = 128 << 10;

struct Slice {
  int source;          // the rank whose part it is, or the sender
  int target;          // receiver, in all_to_all
  std::int64_t begin;  // in elements of the part
  std::int64_t end;
};

char* data_of(const torch::Tensor& tensor) { return static_cast<char*>(tensor.data_ptr()); }

std::int64_t first_row(const Sizes& sizes, int rank) {
  return std::accumulate(sizes.begin(), sizes.begin() + rank, std::int64_t{0});
}

std::int64_t elements_of_slice(const LocalEntry& entry) {
  return std::max<std::int64_t>(1, kSliceBytes / static_cast<std::int64_t>(entry.in.element_size()));
}

std::int64_t pieces_of(std::int64_t elements, const LocalEntry& entry) {
  const std::int64_t step = elements_of_slice(entry);
  return (elements + step - 1) / step;
}

// Calls use(source, target, elements) for each part of the work, until it returns true.
template <class Use>
void for_parts(Entries entries, Use use) {
  const LocalEntry& first = entries[0];
  const int size = static_cast<int>(entries.size());
  switch (first.kind) {
    case OperationKind::kAllReduce:
      use(0, 0, first.in.numel());
      return;
    case OperationKind::kBroadcast:
      use(first.root, 0, first.in.numel());
      return;
    case OperationKind::kAllGather:
    case OperationKind::kReduceScatter:
      for (int rank = 0; rank < size; ++rank) {
        const auto& part = first.kind == OperationKind::kAllGather ? entries[rank].in : entries[rank].out;
        if (use(rank, 0, part.numel())) return;
      }
      return;
    case OperationKind::kAllToAll:
      for (int source = 0; source < size; ++source)
        for (int target = 0; target < size; ++target) {
          const LocalEntry& from = entries[source];
          if (use(source, target, from.sizes[target] * row_elements(from.in))) return;
        }
      return;
    default:
      return;
  }
}

// Computed instead of looked up: a list would allocate whenever it gets longer than before.
Slice slice_at(Entries entries, std::int64_t index) {
  const std::int64_t step = elements_of_slice(entries[0]);
  Slice slice{};
  for_parts(entries, [&](int source, int target, std::int64_t elements) {
    const std::int64_t pieces = pieces_of(elements, entries[0]);
    if (index >= pieces) {
      index -= pieces;
      return false;
    }
    slice = {source, target, index * step, std::min(elements, (index + 1) * step)};
    return true;
  });
  return slice;
}

}  // namespace

void LocalEntry::fill(const Collective& call, const torch::Tensor& own_in, const torch::Tensor& own_out) {
  kind = call.kind;
  op = call.op;
  root = call.root;
  in = own_in;
  out = own_out;
  call.sizes ? sizes.assign(call.sizes->begin(), call.sizes->end()) : sizes.clear();
  call.out_sizes ? out_sizes.assign(call.out_sizes->begin(), call.out_sizes->end()) : out_sizes.clear();
}

int count_slices(Entries entries) {
  std::int64_t slices = 0;
  for_parts(entries, [&](int, int, std::int64_t elements) {
    slices += pieces_of(elements, entries[0]);
    return false;
  });
  return static_cast<int>(slices);
}

void work_on_slice(Entries entries, std::int64_t index) {
  const Slice slice = slice_at(entries, index);
  const int size = static_cast<int>(entries.size());
  const LocalEntry& first = entries[0];
  const std::int64_t item = static_cast<std::int64_t>(first.in.element_size());
  const std::int64_t bytes = (slice.end - slice.begin) * item;
  static thread_local std::vector<const void*> inputs;  // per thread, so that its memory is kept
  switch (first.kind) {
    case OperationKind::kAllReduce: {
      inputs.resize(entries.size());
      const std::int64_t piece = std::max<std::int64_t>(1, kReducePieceBytes / item);
      for (std::int64_t begin = slice.begin; begin < slice.end; begin += piece) {
        const std::int64_t n = std::min(piece, slice.end - begin);
        for (int rank = 0; rank < size; ++rank) inputs[rank] = data_of(entries[rank].in) + begin * item;
        char* sum = data_of(first.in) + begin * item;
        reduce_span(sum, inputs.data(), size, n, first.in.scalar_type(), first.op);
        for (int rank = 1; rank < size; ++rank) std::memcpy(data_of(entries[rank].in) + begin * item, sum, n * item);
      }
      return;
    }
    case OperationKind::kReduceScatter: {
      const LocalEntry& owner = entries[slice.source];
      const std::int64_t offset = (first_row(first.sizes, slice.source) * row_elements(first.in) + slice.begin) * item;
      inputs.resize(entries.size());
      for (int rank = 0; rank < size; ++rank) inputs[rank] = data_of(entries[rank].in) + offset;
      reduce_span(data_of(owner.out) + slice.begin * item, inputs.data(), size, slice.end - slice.begin,
                  first.in.scalar_type(), first.op);
      return;
    }
    case OperationKind::kAllGather: {
      const std::int64_t offset = (first_row(first.sizes, slice.source) * row_elements(first.in) + slice.begin) * item;
      const char* part = data_of(entries[slice.source].in) + slice.begin * item;
      for (const LocalEntry& entry : entries)
        if (data_of(entry.out) + offset != part) std::memcpy(data_of(entry.out) + offset, part, bytes);
      return;
    }
    case OperationKind::kBroadcast: {
      const char* source = data_of(entries[slice.source].in) + slice.begin * item;
      for (int rank = 0; rank < size; ++rank)
        if (rank != slice.source) std::memcpy(data_of(entries[rank].in) + slice.begin * item, source, bytes);
      return;
    }
    case OperationKind::kAllToAll: {
      const LocalEntry& from = entries[slice.source];
      const LocalEntry& to = entries[slice.target];
      const std::int64_t row = row_elements(from.in);
      std::memcpy(data_of(to.out) + (first_row(to.out_sizes, slice.source) * row + slice.begin) * item,
                  data_of(from.in) + (first_row(from.sizes, slice.target) * row + slice.begin) * item, bytes);
      return;
    }
    default:
      return;
  }
}

}  // namespace gantry

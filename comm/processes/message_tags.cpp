#include "gantry/comm/processes/message_tags.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

constexpr int kKindBits = 2;
constexpr int kWideBits = 31, kNarrowBits = 23;
constexpr int kDtypes = 16;  // the ScalarTypes up to bfloat16, which include all that can be sent
static_assert(static_cast<int>(torch::kBFloat16) < kDtypes);
// The two reductions have three codes each, one for each ReduceOp.
constexpr struct {
  OperationKind kind;
  int first, codes;
} kCallsOf[] = {{OperationKind::kAllReduce, 0, 3}, {OperationKind::kReduceScatter, 3, 3},
                {OperationKind::kAllGather, 6, 1}, {OperationKind::kBroadcast, 7, 1},
                {OperationKind::kAllToAll, 8, 1},  {OperationKind::kBarrier, 9, 1}};
constexpr int kCalls = 10;

// Returns the number of bits of the tags from 0 to `largest_tag`.
int bits_of(int largest_tag) {
  int bits = 0;
  while (bits < kWideBits && ((std::int64_t{1} << (bits + 1)) - 1) <= largest_tag) ++bits;
  return bits;
}

int field(const Tag& tag, const char* name, int value, int bits) {
  if (value >= 0 && value < (1 << bits)) return value;
  throw UsageError(
      {"tag",
       fmt::format("{}: {} {} does not fit into its {} bits of a message's tag", describe(tag), name, value, bits),
       fmt::format("0 to {}", (1 << bits) - 1), "use fewer microbatches, stages or entries"});
}

}  // namespace

int TagLayout::encode(const Tag& tag) const {
  int code = static_cast<int>(tag.kind);
  code = code << stage_bits | field(tag, "stage", tag.stage, stage_bits);
  code = code << microbatch_bits | field(tag, "microbatch", tag.microbatch, microbatch_bits);
  return code << entry_bits | field(tag, "entry", tag.entry, entry_bits);
}

TagLayout tag_layout(int largest_tag) {
  const int bits = bits_of(largest_tag);
  if (bits >= kWideBits) return {10, 13, kWideBits - kKindBits - 23};
  if (bits >= kNarrowBits) return {7, 10, kNarrowBits - kKindBits - 17};
  throw ResourceError({"mpi", fmt::format("this MPI's largest tag is {}, which has {} bits", largest_tag, bits),
                       fmt::format("at least {} bits", kNarrowBits),
                       "choose another transport (mpirun --mca pml ob1)"});
}

int CallCode::encode() const {
  const auto* of_kind =
      std::find_if(std::begin(kCallsOf), std::end(kCallsOf), [&](const auto& one) { return one.kind == kind; });
  const int call = of_kind->first + (of_kind->codes > 1 ? static_cast<int>(op) : 0);
  return call * kDtypes + std::min(static_cast<int>(dtype), kDtypes - 1);
}

int call_codes() { return kCalls * kDtypes; }

std::string describe_call_code(int code) {
  const int call = code / kDtypes;
  for (const auto& [kind, first, codes] : kCallsOf) {
    if (call < first || call >= first + codes) continue;
    const std::string name = name_of(kind);
    if (kind == OperationKind::kBarrier) return name;
    return name + (codes > 1 ? fmt::format(" ({})", name_of(static_cast<ReduceOp>(call - first))) : "") + " of " +
           dtype_name(static_cast<torch::ScalarType>(code % kDtypes));
  }
  return "";
}

DataTags::DataTags(int largest_tag) : half_(1 << (bits_of(largest_tag) - 1)) {}

int DataTags::collective(std::uint64_t sequence, int call_code) const {
  const std::uint64_t numbers = static_cast<std::uint64_t>(half_) >> CallCode::kBits;
  return static_cast<int>((sequence % numbers) << CallCode::kBits) | call_code;
}

int DataTags::payload(std::uint64_t sequence) const {
  return half_ + static_cast<int>(sequence % static_cast<std::uint64_t>(half_));
}

}  // namespace gantry

// The encoding of tags and calls in the integer tags of a transport.
#pragma once

#include <cstdint>
#include <string>

#include "gantry/comm/process_group.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// Numbers of bits in a message's tag: kind (2), stage, microbatch, entry.
struct TagLayout {
  int stage_bits = 0;
  int microbatch_bits = 0;
  int entry_bits = 0;

  // Throws UsageError for a tag that does not fit, naming the largest number that does.
  int encode(const Tag& tag) const;
};

// Returns the layout for a transport that allows tags up to `largest_tag` (MPI_TAG_UB): 10, 13 and 6 bits, or
// 7, 10 and 4 in the 23 bits of UCX. Throws ResourceError below that.
TagLayout tag_layout(int largest_tag);

// The collective to which a message belongs, in 8 bits, so that members detect different calls.
struct CallCode {
  static constexpr int kBits = 8;
  OperationKind kind = OperationKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  torch::ScalarType dtype = torch::kByte;

  int encode() const;
};
// Returns "all_reduce (max) of float32" for a code; "" if the code is invalid.
std::string describe_call_code(int code);
int call_codes();  // number of codes; they begin at 0

// Tags on a group's data channel: collectives in the lower half, by number and call, and payloads of messages
// in the upper half.
class DataTags {
 public:
  explicit DataTags(int largest_tag);
  int collective(std::uint64_t sequence, int call_code) const;
  int payload(std::uint64_t sequence) const;

 private:
  int half_;  // first payload tag, a power of two
};

}  // namespace gantry

// The encoding of tags and calls in a transport's integer tags.
#pragma once

#include <cstdint>
#include <string>

#include "gantry/comm/process_group.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// Bits of a message's tag: kind (2), stage, microbatch, entry.
struct TagLayout {
  int stage_bits = 0;
  int microbatch_bits = 0;
  int entry_bits = 0;

  // UsageError, naming the largest number that fits, for a tag that does not.
  int encode(const Tag& tag) const;
};

// What a transport that allows tags up to `largest_tag` (MPI_TAG_UB) can carry: 10, 13, 6 bits, or 7, 10, 4 in the 23
// bits of UCX. ResourceError below that.
TagLayout tag_layout(int largest_tag);

// Which collective a message belongs to, in 8 bits: members that call different things can tell.
struct CallCode {
  static constexpr int kBits = 8;
  OperationKind kind = OperationKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  torch::ScalarType dtype = torch::kByte;

  int encode() const;
};
// "all_reduce (max) of float32" of a code; "" if it is none.
std::string describe_call_code(int code);
int call_codes();  // codes are 0 to this - 1

// Tags on a group's data channel: collectives by their number and call below, payloads of messages above.
class DataTags {
 public:
  explicit DataTags(int largest_tag);
  int collective(std::uint64_t sequence, int call_code) const;
  int payload(std::uint64_t sequence) const;

 private:
  int half_;  // first payload tag, a power of two
};

}  // namespace gantry

// A call of a collective between processes, and the error texts of its members if it does not end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/comm/processes/group_channel.h"
#include "gantry/comm/processes/process_operation.h"

namespace gantry {

// The call in the form that messages or shared memory need. Keeps the memory of its vectors when it is filled
// again.
struct CollectiveCall {
  CallCode code;
  int root = 0;
  std::uint64_t sequence = 0;  // number of the call in its group
  char* out = nullptr;         // contiguous, like `in`; equal to `in` if the call is in place
  char* in = nullptr;
  std::int64_t item = 1;                         // bytes per element
  std::int64_t elements = 0;                     // in the target
  std::vector<std::int64_t> parts, other_parts;  // elements by rank; other_parts: received in an all_to_all

  void fill(const Collective& call, std::uint64_t number);
  std::int64_t bytes() const { return elements * item; }
  std::string describe() const;  // "all_reduce of float32 [4]"
  // Copies the result to the caller's tensor if that is not contiguous, and releases all tensors.
  void give_result();

 private:
  void release();

  // The storages are kept too, because the owner of a tensor may give it other data while the call is in
  // flight.
  torch::Tensor target_, shown_, temporary_;
  c10::Storage kept_out_, kept_in_;
};

// The common part of collectives by messages and in shared memory. Objects are reused.
class ProcessCollective : public ProcessOperation {
 public:
  explicit ProcessCollective(std::shared_ptr<GroupChannel> channel)
      : ProcessOperation(channel->engine()), channel_(std::move(channel)) {}

  // Prepares the object for another call, before it is posted. Allowed when the former collective is over and
  // no other component holds the object.
  void begin(const Collective& call, std::uint64_t number);
  bool idle() const { return !begun_ || finished(); }

 protected:
  virtual void prepare() = 0;
  void finish() override { call_.give_result(); }
  std::string describe_mismatch(int peer, std::int64_t expected, std::int64_t received) override;
  std::string describe_wait(int peer) override;
  // Returns the error if one of `missing` has sent a message of another call with this call's number.
  std::string find_mismatch(const std::vector<int>& missing) override;
  // Describes the awaited members: `absent` ones, which have not joined, or, if it is empty, the parts of all
  // others. `passed_on`: the awaited data contain other members' parts, so the awaited members may have
  // joined and be waiting too.
  std::string describe_awaited(const std::vector<int>& absent, bool passed_on) const;
  // Returns the error for calls that differ in more than sizes. `theirs`: the peer's call.
  std::string describe_calls(const std::string& mine, int peer, const std::string& theirs) const;

  const std::shared_ptr<GroupChannel> channel_;
  CollectiveCall call_;
  int tag_ = 0;  // tag of its messages

 private:
  bool begun_ = false;
};

}  // namespace gantry

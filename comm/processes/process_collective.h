// A collective between processes as it was called on this rank, and the errors of its members if it does not end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/comm/processes/group_channel.h"
#include "gantry/comm/processes/process_operation.h"

namespace gantry {

// Ready to be carried out over messages or shared memory. Keeps its vectors' memory when it is filled again.
struct CollectiveCall {
  CallCode code;
  int root = 0;
  std::uint64_t sequence = 0;  // in its group
  char* out = nullptr;         // contiguous, as is `in`; in place both are the same
  char* in = nullptr;
  std::int64_t item = 1;                         // bytes of an element
  std::int64_t elements = 0;                     // of the target
  std::vector<std::int64_t> parts, other_parts;  // elements by rank; other_parts: received by all_to_all

  void fill(const Collective& call, std::uint64_t number);
  std::int64_t bytes() const { return elements * item; }
  std::string describe() const;  // "all_reduce of float32 [4]"
  // The result to the caller's tensor where that is not contiguous; then lets go of all tensors.
  void give_result();

 private:
  void release();

  // Storages too: a tensor's owner may give it other data while this is under way.
  torch::Tensor target_, shown_, temporary_;
  c10::Storage kept_out_, kept_in_;
};

// What the two ways of a collective, by messages and in shared memory, have in common. Used again and again.
class ProcessCollective : public ProcessOperation {
 public:
  explicit ProcessCollective(std::shared_ptr<GroupChannel> channel)
      : ProcessOperation(channel->engine()), channel_(std::move(channel)) {}

  // As new, before it is posted. Once the former collective is over and nobody holds it.
  void begin(const Collective& call, std::uint64_t number);
  bool idle() const { return !begun_ || finished(); }

 protected:
  virtual void prepare() = 0;
  void finish() override { call_.give_result(); }
  std::string describe_mismatch(int peer, std::int64_t expected, std::int64_t received) override;
  std::string describe_wait(int peer) override;
  // A message of one of `missing` that is of another call with this one's number.
  std::string find_mismatch(const std::vector<int>& missing) override;
  // What is waited for: `absent` members that have not joined, or, where it is empty, the others' parts. `passed_on`:
  // what is awaited of them is made of other members' parts, so that they may have joined and wait themselves.
  std::string describe_awaited(const std::vector<int>& absent, bool passed_on) const;
  // What members say when they differ in more than sizes. `theirs`: what the peer called.
  std::string describe_calls(const std::string& mine, int peer, const std::string& theirs) const;

  const std::shared_ptr<GroupChannel> channel_;
  CollectiveCall call_;
  int tag_ = 0;  // of its messages

 private:
  bool begun_ = false;
};

}  // namespace gantry

// The messages of one group: heads over the host's group, device tensors over a communicator a direction and neighbour,
// and the matching of tags. See nccl_backend.h for the rule that keeps the device free of deadlock.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "gantry/comm/nccl/nccl_communicator.h"

namespace gantry {

// A message that has come: a tensor whose receive is under way on the device or on the host, or nothing.
struct NcclMessage {
  Tag tag;
  torch::Tensor tensor;                      // undefined if absent, or still in `payload`
  std::shared_ptr<NcclOperation> operation;  // behind it the tensor is there; null if it is there
  Work payload;                              // over the host
  bool on_host = false;                      // it comes as payload
};

// A recv call. Calls of one tag take messages in the order they were made.
struct NcclReceive {
  Tag tag;
  TensorSpec spec;
  bool matched = false;
  NcclMessage message;
};

class NcclMessages : public std::enable_shared_from_this<NcclMessages> {
 public:
  // Collective over the group: makes the neighbours' communicators if `direct`.
  NcclMessages(std::shared_ptr<NcclJob> job, std::shared_ptr<ProcessGroup> base, std::string label,
               std::vector<int> ranks, bool direct);

  // `owned_by_receiver`: nobody waits for it, and it may become the receiver's.
  Work send(const torch::Tensor& tensor, int to, const Tag& tag, bool owned_by_receiver);
  Work recv(const TensorSpec& spec, int from, const Tag& tag);

  // For a recv's Work: takes what has come from there.
  void progress(int from);
  NcclJob& job() { return *job_; }
  std::string describe_member(int rank) const { return job_->describe_rank(ranks_[rank]); }
  bool has_ended(int rank) const { return job_->has_ended(ranks_[rank]); }
  int rank() const { return base_->rank(); }

 private:
  struct Source {  // what comes from one member
    std::deque<std::shared_ptr<NcclReceive>> wanted;
    std::deque<NcclMessage> early;  // no recv has asked for them yet
    Work head;                      // under way while `listening`
    bool listening = false;
    std::uint64_t payloads = 0;  // tensors over the host so far
  };

  void connect(int from, int to);
  void deliver(Source& source, NcclMessage message);
  NcclMessage begin_receive(int from, const torch::Tensor& head);
  void send_head(int to, const Tag& tag, const torch::Tensor& tensor, int path);
  Work send_direct(const torch::Tensor& tensor, int to, const Tag& tag, bool owned_by_receiver);

  const std::shared_ptr<NcclJob> job_;
  const std::shared_ptr<ProcessGroup> base_;
  const std::string label_;
  const std::vector<int> ranks_;
  std::map<int, std::unique_ptr<NcclCommunicator>> to_, from_;  // by member
  std::vector<Source> sources_;
  std::vector<std::uint64_t> payloads_sent_;  // to each member
};

}  // namespace gantry

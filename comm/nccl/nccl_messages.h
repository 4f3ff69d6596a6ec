// The messages of one group: heads over the host's group, device tensors over one communicator per direction
// and neighbour, and the matching of tags. See nccl_backend.h for the rule that prevents deadlocks on the
// device.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "gantry/comm/nccl/nccl_communicator.h"

namespace gantry {

// A message that has arrived: a tensor that is still being received on the device or over the host, or an
// absent tensor.
struct NcclMessage {
  Tag tag;
  torch::Tensor tensor;                      // undefined if absent, or still in `payload`
  std::shared_ptr<NcclOperation> operation;  // the receive that fills `tensor`; null if `tensor` is complete
  Work payload;                              // receive of the tensor over the host
  bool on_host = false;                      // the tensor is sent over the host, as `payload`
};

// A recv() call. Calls with the same tag take messages in the order of the calls.
struct NcclReceive {
  Tag tag;
  TensorSpec spec;
  bool matched = false;
  NcclMessage message;
};

class NcclMessages : public std::enable_shared_from_this<NcclMessages> {
 public:
  // Collective over the group. Makes the communicators of neighbours if `direct`.
  NcclMessages(std::shared_ptr<NcclJob> job, std::shared_ptr<ProcessGroup> base, std::string label,
               std::vector<int> ranks, bool direct);

  // `owned_by_receiver`: no caller waits for the send, and the receiver may own the tensor.
  Work send(const torch::Tensor& tensor, int to, const Tag& tag, bool owned_by_receiver);
  Work recv(const TensorSpec& spec, int from, const Tag& tag);

  // Takes the arrived messages of member `from`. Called by the Work of a recv().
  void progress(int from);
  NcclJob& job() { return *job_; }
  std::string describe_member(int rank) const { return job_->describe_rank(ranks_[rank]); }
  bool has_ended(int rank) const { return job_->has_ended(ranks_[rank]); }
  int rank() const { return base_->rank(); }

 private:
  struct Source {  // the messages from one member
    std::deque<std::shared_ptr<NcclReceive>> wanted;
    std::deque<NcclMessage> early;  // no recv() has asked for them yet
    Work head;                      // receive in flight while `listening`
    bool listening = false;
    std::uint64_t payloads = 0;  // number of tensors over the host so far
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
  std::vector<std::uint64_t> payloads_sent_;  // per member
};

}  // namespace gantry

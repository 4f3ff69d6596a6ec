// One rank's endpoint to a group over MPI.
#pragma once

#include <memory>
#include <vector>

#include "gantry/comm/mpi/message_collective.h"
#include "gantry/comm/mpi/mpi_channel.h"
#include "gantry/comm/mpi/mpi_messages.h"
#include "gantry/comm/mpi/shared_collective.h"
#include "gantry/core/block_pool.h"
#include "gantry/core/error.h"

namespace gantry {

// Operations that are used again and again: as many as were ever under way at once.
template <class Operation>
struct OperationRing {
  std::vector<std::shared_ptr<Operation>> all;
  std::size_t last = 0;  // found idle
};

class MpiGroup final : public ProcessGroup {
 public:
  explicit MpiGroup(std::shared_ptr<MpiChannel> channel) : channel_(std::move(channel)) {}

  int rank() const override { return channel_->rank(); }
  int size() const override { return channel_->size(); }
  // Both are done at once, as on the local backend: a send never waits for its receiver. What is sent is kept until it
  // has left.
  Work send(const torch::Tensor& tensor, int to, const Tag& tag) override;
  Work hand_over(const torch::Tensor& tensor, int to, const Tag& tag) override;
  Work recv(const TensorSpec& spec, int from, const Tag& tag) override;
  Work start(const Collective& call) override;
  void abort(const std::string& reason) override { channel_->engine()->fail(PeerError::kExitCode, reason); }

 private:
  Work post_send(const torch::Tensor& tensor, SentMemory memory, int to, const Tag& tag);
  bool shares_memory(const Collective& call) const;
  template <class Operation>
  Work begin(OperationRing<Operation>& ring, const Collective& call);

  std::shared_ptr<MpiChannel> channel_;
  std::uint64_t collectives_ = 0;
  std::uint64_t payloads_ = 0;
  OperationRing<SharedCollective> shared_;
  OperationRing<MessageCollective> messages_;
  std::shared_ptr<BlockPool> sends_ = std::make_shared<BlockPool>(), receives_ = std::make_shared<BlockPool>();
};

}  // namespace gantry

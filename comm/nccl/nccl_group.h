// A process group of the NCCL backend.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/group_calls.h"
#include "gantry/comm/nccl/nccl_communicator.h"
#include "gantry/comm/nccl/nccl_messages.h"

namespace gantry {

class NcclGroup final : public ProcessGroup {
 public:
  // Collective over `ranks` (world ranks, ascending).
  NcclGroup(std::shared_ptr<NcclJob> job, const std::string& label, const std::vector<int>& ranks);

  int rank() const override { return base_->rank(); }
  int size() const override { return base_->size(); }
  Work send(const torch::Tensor& tensor, int to, const Tag& tag) override;
  Work hand_over(const torch::Tensor& tensor, int to, const Tag& tag) override;
  Work recv(const TensorSpec& spec, int from, const Tag& tag) override;
  Work all_reduce(torch::Tensor& tensor, ReduceOp op) override;
  Work all_gather(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes) override;
  Work reduce_scatter(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes, ReduceOp op) override;
  Work broadcast(torch::Tensor& tensor, int root) override;
  Work all_to_all(torch::Tensor& out, const torch::Tensor& in, const Sizes& out_sizes, const Sizes& in_sizes) override;
  Work barrier() override;
  void abort(const std::string& reason) override { job_->fail(reason); }

 private:
  // Contiguous tensors of a collective; `in` is null where the call is in place.
  using Calls = std::function<ncclResult_t(char* target, const char* in, ncclComm_t, cudaStream_t)>;
  Work post(CollectiveKind kind, torch::Tensor& target, const torch::Tensor& in, const Calls& calls);
  // Whether a call's tensors travel by NCCL; false: all lie on the host. UsageError for some of each.
  bool on_device(const torch::Tensor& target, const torch::Tensor& in, CollectiveKind kind) const;

  const std::shared_ptr<NcclJob> job_;
  std::string name_;  // "group 'tp' with rank 1 (...), rank 2 (...)"
  std::shared_ptr<ProcessGroup> base_;
  std::unique_ptr<NcclCommunicator> communicator_;  // null in a group of one
  std::shared_ptr<NcclMessages> messages_;
  std::uint64_t collectives_ = 0;
};

}  // namespace gantry

// A process group over two MPI communicators, one for messages and one for collectives.
#pragma once

#include "gantry/comm/mpi/mpi_operation.h"
#include "gantry/comm/process_group.h"

namespace gantry {

class MpiGroup final : public ProcessGroup {
 public:
  // Takes over both communicators.
  MpiGroup(const MpiContext& context, std::string label, std::vector<int> ranks, int rank, MPI_Comm messages,
           MPI_Comm collectives);
  ~MpiGroup() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  Work send(const torch::Tensor& tensor, int to, const Tag& tag) override;
  Work recv(const TensorSpec& spec, int from, const Tag& tag) override;
  Work all_reduce(torch::Tensor& tensor, ReduceOp op) override;
  Work all_gather(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes) override;
  Work reduce_scatter(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes, ReduceOp op) override;
  Work broadcast(torch::Tensor& tensor, int root) override;
  Work all_to_all(torch::Tensor& out, const torch::Tensor& in, const Sizes& out_sizes, const Sizes& in_sizes) override;
  Work barrier() override;
  void abort(const std::string& reason) override;

 private:
  using Stage = MpiOperation::Stage;
  // A collective's message from or to each other member.
  void exchange(MpiOperation& operation, const std::function<std::pair<const char*, std::int64_t>(int)>& sent,
                const std::function<std::pair<char*, std::int64_t>(int)>& received, int tag) const;
  Work start(std::string what, std::vector<Stage> stages, std::vector<torch::Tensor> kept) const;
  Work all_reduce_small(torch::Tensor& tensor, const torch::Tensor& work, ReduceOp op);
  Work all_reduce_large(torch::Tensor& tensor, const torch::Tensor& work, ReduceOp op);
  int next_tag();
  std::string name_of(int member) const { return context_.describe_rank(ranks_[static_cast<std::size_t>(member)]); }

  const MpiContext& context_;
  std::string label_;
  std::vector<int> ranks_;
  int rank_;
  MPI_Comm messages_, collectives_;
  int sequence_ = 0;
};

}  // namespace gantry

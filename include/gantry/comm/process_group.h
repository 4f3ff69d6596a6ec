// A process group: the ranks that share all mesh coordinates except those of some axes, and this rank's endpoint to
// them.
//
// Every operation returns a Work at once, which wait() completes. All members must call the collectives of a group in
// the same order; any number of them can be in flight. Reductions add in rank order, starting from rank 0, so results
// are bitwise reproducible in the same layout on every backend. NCCL does so only with comm.sums_by_rank. A group of
// size 1 is a normal group. Call the operations of a group from one thread at a time. After a failure of a member, all
// pending and later operations throw PeerError that names it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/comm/operation.h"
#include "gantry/comm/work.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// The shape, type and device of a tensor to receive.
struct TensorSpec {
  std::vector<std::int64_t> shape;
  torch::ScalarType dtype = torch::kFloat;
  torch::Device device = torch::kCPU;
};

using Sizes = std::vector<std::int64_t>;  // sizes along dimension 0, per rank

// The arguments of a collective. The referenced objects belong to the caller and are valid during the call.
struct Collective {
  OperationKind kind = OperationKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  const torch::Tensor* target = nullptr;  // receives the result; null for a barrier
  const torch::Tensor* in = nullptr;      // null if the call is in place
  const Sizes* sizes = nullptr;           // rows per rank: of the full tensor, or sent by an all_to_all
  const Sizes* out_sizes = nullptr;       // rows per rank that an all_to_all receives

  // The contribution of this rank: `in`, or `target` if the call is in place; undefined for a barrier.
  const torch::Tensor& brought() const;
  // Throws UsageError if sizes, root or dtype are invalid for member `rank` of a group of `size` ranks.
  void check(int rank, int size) const;
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;  // index in the group, by ascending world rank
  virtual int size() const = 0;

  // Sends a tensor. It must not change until the Work is done. An undefined tensor is sent as absent. If the memory is
  // on the host, send() copies the tensor and is done at once.
  virtual Work send(const torch::Tensor& tensor, int to, const Tag& tag) = 0;
  // Sends a tensor without copying it. The caller must not write to its memory any more, because the receiver may get
  // this memory. The group keeps the tensor as long as needed, so the Work can be dropped in flight.
  virtual Work hand_over(const torch::Tensor& tensor, int to, const Tag& tag) = 0;
  // Receives a tensor of this spec as result(). Throws PeerError with both specs if the sent tensor has another shape
  // or dtype.
  virtual Work recv(const TensorSpec& spec, int from, const Tag& tag) = 0;

  // In place. All operations support non-contiguous tensors.
  Work all_reduce(torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  // out [sum of sizes, ...] receives in [sizes[rank], ...] of every rank, in rank order. The caller allocates `out`.
  // `in` may be this rank's rows of `out`.
  Work all_gather(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes);
  // out [sizes[rank], ...] receives this rank's rows of the sum over the ranks of in [sum of sizes, ...]. `out` may be
  // this rank's rows of `in`.
  Work reduce_scatter(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes, ReduceOp op = ReduceOp::kSum);
  Work broadcast(torch::Tensor& tensor, int root);
  // Sends in_sizes[r] rows of `in` to each rank r, and receives out_sizes[r] rows of `out` from it.
  Work all_to_all(torch::Tensor& out, const torch::Tensor& in, const Sizes& out_sizes, const Sizes& in_sizes);
  Work barrier();

  // Starts any of these six collectives. Backends implement this function, and groups that wrap other groups call it.
  virtual Work start(const Collective& call) = 0;

  // Makes the pending and later operations of all members throw PeerError with `reason`. Does not wait for other ranks.
  // Over MPI it waits while another thread of this process is inside an MPI call.
  virtual void abort(const std::string& reason) = 0;

 private:
  Work call(const Collective& collective);
};

// --- Functions for any group ---

// Concatenates every rank's `in` along `dim`, with these sizes per rank.
torch::Tensor all_gather_along(ProcessGroup& group, const torch::Tensor& in, int dim, const Sizes& sizes);
torch::Tensor reduce_scatter_along(ProcessGroup& group, const torch::Tensor& in, int dim, const Sizes& sizes);
// A reduce_scatter_along() in flight. wait() returns this rank's part.
class PendingPart {
 public:
  PendingPart() = default;
  PendingPart(Work work, torch::Tensor rows, std::int64_t dim)
      : work_(std::move(work)), rows_(std::move(rows)), dim_(dim) {}
  torch::Tensor wait();

 private:
  Work work_;
  torch::Tensor rows_;  // the part, with the sharded dimension first
  std::int64_t dim_ = 0;
};
PendingPart start_reduce_scatter_along(ProcessGroup& group, const torch::Tensor& in, int dim, const Sizes& sizes);
// Returns every rank's number, in rank order.
std::vector<std::int64_t> all_gather_numbers(ProcessGroup& group, std::int64_t value);
double all_reduce_number(ProcessGroup& group, double value, ReduceOp op = ReduceOp::kSum);
// Returns root's text on every rank.
std::string broadcast_text(ProcessGroup& group, const std::string& text, int root);
// Returns every rank's text in rank order on rank 0 of the group, and nothing on other ranks.
std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& text);

// --- Checks for backends, which give the same errors for all of them ---

// Returns the number of elements per index of dimension 0, computed from the other dimensions.
std::int64_t row_elements(const torch::Tensor& tensor);
// Throws UsageError if `rank` is not in a group of `size` ranks.
void check_rank(int rank, int size, const char* call);
// Throws UsageError if `device` is not the CPU, the only device that this backend supports.
void check_on_cpu(const torch::Device& device, const char* call, const char* backend);

}  // namespace gantry

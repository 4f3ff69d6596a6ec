// The ranks that share all mesh coordinates but some axes', and this rank's endpoint to them.
//
// Every operation returns a Work at once and is finished by its wait(). All members call the collectives of a group in
// the same order; any number of them may be under way. Reductions sum by rank, 0 first, so the same layout gives the
// same bits on every backend, run after run; over NCCL where comm.sums_by_rank asks for it. A group of size 1 is a real
// group. Operations of one group are called from one thread at a time. After a member's failure every pending and later
// operation throws PeerError that names it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/comm/operation.h"
#include "gantry/comm/work.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

struct TensorSpec {
  std::vector<std::int64_t> shape;
  torch::ScalarType dtype = torch::kFloat;
  torch::Device device = torch::kCPU;
};

using Sizes = std::vector<std::int64_t>;  // a size along dim 0 for each rank

// A collective as it is called. What it refers to is the caller's, and valid during the call.
struct Collective {
  OperationKind kind = OperationKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  const torch::Tensor* target = nullptr;  // gets the result; null for a barrier
  const torch::Tensor* in = nullptr;      // null where the call is in place
  const Sizes* sizes = nullptr;           // rows of each rank: of the whole, or sent by an all_to_all
  const Sizes* out_sizes = nullptr;       // rows that an all_to_all receives

  // What this rank brings: `in`, or the target that it stands in; an undefined tensor for a barrier.
  const torch::Tensor& brought() const;
  // UsageError where the sizes, the root or the dtype are none that member `rank` of `size` may call it with.
  void check(int rank, int size) const;
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;  // in the group, by ascending world rank
  virtual int size() const = 0;

  // `tensor` must stay unchanged until the Work is done; then it may be written again. An undefined one is sent as
  // absent. Where the memory is the host's, this copies the tensor and is done at once.
  virtual Work send(const torch::Tensor& tensor, int to, const Tag& tag) = 0;
  // The same without a copy, of a tensor that the caller gives away: nobody writes to its memory any more, which may
  // become the receiver's. The group keeps it for as long as it is needed, so the Work may be dropped under way.
  virtual Work hand_over(const torch::Tensor& tensor, int to, const Tag& tag) = 0;
  // result() is the tensor, of that spec. PeerError if what was sent has another shape or dtype, naming both.
  virtual Work recv(const TensorSpec& spec, int from, const Tag& tag) = 0;

  // In place. Non-contiguous tensors are allowed everywhere.
  Work all_reduce(torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  // out [sum of sizes, ...] gets in [sizes[rank], ...] of every rank, in rank order. `out` is the caller's, of that
  // shape; `in` may be this rank's own rows of it.
  Work all_gather(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes);
  // out [sizes[rank], ...] gets this rank's rows of the sum of every rank's in [sum of sizes, ...]. `out` may be this
  // rank's own rows of `in`.
  Work reduce_scatter(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes, ReduceOp op = ReduceOp::kSum);
  Work broadcast(torch::Tensor& tensor, int root);
  // Rows of `in` go by in_sizes to each rank; rows of `out` come from each rank by out_sizes.
  Work all_to_all(torch::Tensor& out, const torch::Tensor& in, const Sizes& out_sizes, const Sizes& in_sizes);
  Work barrier();

  // Any of these six, by its description: what a backend implements, and what groups that stand on others call.
  virtual Work start(const Collective& call) = 0;

  // Ends every member's pending and later operations with PeerError saying `reason`. Never blocks.
  virtual void abort(const std::string& reason) = 0;

 private:
  Work call(const Collective& collective);
};

// --- Composites: free functions over any group. ---

// Concatenation of every rank's `in` along `dim`, whose extents are `sizes`.
torch::Tensor all_gather_along(ProcessGroup& group, const torch::Tensor& in, int dim, const Sizes& sizes);
torch::Tensor reduce_scatter_along(ProcessGroup& group, const torch::Tensor& in, int dim, const Sizes& sizes);
// The same under way: wait() gives this rank's part.
class PendingPart {
 public:
  PendingPart() = default;
  PendingPart(Work work, torch::Tensor rows, std::int64_t dim)
      : work_(std::move(work)), rows_(std::move(rows)), dim_(dim) {}
  torch::Tensor wait();

 private:
  Work work_;
  torch::Tensor rows_;  // the part with the sharded dim first
  std::int64_t dim_ = 0;
};
PendingPart start_reduce_scatter_along(ProcessGroup& group, const torch::Tensor& in, int dim, const Sizes& sizes);
// Every rank's number, in rank order.
std::vector<std::int64_t> all_gather_numbers(ProcessGroup& group, std::int64_t value);
double all_reduce_number(ProcessGroup& group, double value, ReduceOp op = ReduceOp::kSum);
// Root's text on every rank.
std::string broadcast_text(ProcessGroup& group, const std::string& text, int root);
// Every rank's text in rank order on rank 0 of the group; nothing on others.
std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& text);

// --- For backends: what they check, so that all refuse the same calls in the same words. ---

// Elements of one row (dim 0 index); tensors with a zero dim 0 take it from their other dims.
std::int64_t row_elements(const torch::Tensor& tensor);
// UsageError for a rank that is not in a group of `size`.
void check_rank(int rank, int size, const char* call);
// UsageError for another device than the CPU, which the backend of that name can't reach.
void check_on_cpu(const torch::Device& device, const char* call, const char* backend);

}  // namespace gantry

#include "gantry/comm/mpi/mpi_group.h"

#include <torch/torch.h>

#include "gantry/comm/group_calls.h"
#include "gantry/comm/reduce_kernels.h"

namespace gantry {
namespace {

// One of the ring's that nobody uses, else a new one; looks first behind the last one that was found.
template <class Operation>
std::shared_ptr<Operation> idle_one(OperationRing<Operation>& ring, const std::shared_ptr<MpiChannel>& channel) {
  auto& all = ring.all;
  for (std::size_t i = 0; i < all.size(); ++i) {
    ring.last = (ring.last + 1) % all.size();
    if (all[ring.last].use_count() > 1 || !all[ring.last]->idle()) continue;
    std::atomic_thread_fence(std::memory_order_acquire);  // after what the last other holder did
    return all[ring.last];
  }
  all.push_back(std::make_shared<Operation>(channel));
  return all.back();
}

}  // namespace

// Between the hosts of a group, small sums and everything else go as messages from each to each.
bool MpiGroup::shares_memory(const CollectiveArguments& call) const {
  if (!channel_->ring() || channel_->host_place().alone) return channel_->ring() != nullptr;
  return call.kind == CollectiveKind::kAllReduce &&
         call.target->numel() * static_cast<std::int64_t>(call.target->element_size()) >
             channel_->engine()->limits().direct_bytes;
}

template <class Operation>
Work MpiGroup::begin(OperationRing<Operation>& ring, const CollectiveArguments& arguments) {
  std::shared_ptr<Operation> operation = idle_one(ring, channel_);
  operation->call().fill(arguments, collectives_++);
  operation->begin();
  channel_->engine()->post(operation);
  return Work(std::move(operation));
}

Work MpiGroup::post(const CollectiveArguments& arguments) {
  RECORD_FUNCTION(collective_label(arguments.kind), (std::vector<c10::IValue>{arguments.in       ? *arguments.in
                                                                              : arguments.target ? *arguments.target
                                                                                                 : torch::Tensor()}));
  channel_->engine()->throw_if_failed();
  return shares_memory(arguments) ? begin(shared_, arguments) : begin(messages_, arguments);
}

Work MpiGroup::send(const torch::Tensor& tensor, int to, const Tag& tag) {
  return post_send(tensor, SentMemory::kCopied, to, tag);
}

Work MpiGroup::hand_over(const torch::Tensor& tensor, int to, const Tag& tag) {
  return post_send(tensor, SentMemory::kGivenAway, to, tag);
}

Work MpiGroup::post_send(const torch::Tensor& tensor, SentMemory memory, int to, const Tag& tag) {
  check_rank(to, size(), "send");
  if (tensor.defined()) check_on_cpu(tensor, "send");
  channel_->engine()->post(make_send(sends_, channel_, tensor, memory, to, tag, payloads_++));
  return {};
}

Work MpiGroup::recv(const TensorSpec& spec, int from, const Tag& tag) {
  check_rank(from, size(), "recv");
  if (!spec.device.is_cpu()) check_on_cpu(torch::empty({0}, spec.device), "recv");
  auto operation = make_receive(receives_, channel_, spec, from, tag);
  channel_->engine()->post(operation);
  return Work(std::move(operation));
}

Work MpiGroup::all_reduce(torch::Tensor& tensor, ReduceOp op) {
  sum_item(tensor.scalar_type());  // refuses types without a sum before any rank waits
  return post({.kind = CollectiveKind::kAllReduce, .op = op, .target = &tensor});
}

Work MpiGroup::all_gather(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes) {
  check_gather(out, in, sizes, rank(), size(), "all_gather");
  return post({.kind = CollectiveKind::kAllGather, .target = &out, .in = &in, .sizes = &sizes});
}

Work MpiGroup::reduce_scatter(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes, ReduceOp op) {
  check_gather(in, out, sizes, rank(), size(), "reduce_scatter");
  sum_item(in.scalar_type());
  return post({.kind = CollectiveKind::kReduceScatter, .op = op, .target = &out, .in = &in, .sizes = &sizes});
}

Work MpiGroup::broadcast(torch::Tensor& tensor, int root) {
  check_rank(root, size(), "broadcast");
  return post({.kind = CollectiveKind::kBroadcast, .root = root, .target = &tensor});
}

Work MpiGroup::all_to_all(torch::Tensor& out, const torch::Tensor& in, const Sizes& out_sizes, const Sizes& in_sizes) {
  check_all_to_all(out, in, out_sizes, in_sizes, size());
  return post(
      {.kind = CollectiveKind::kAllToAll, .target = &out, .in = &in, .sizes = &in_sizes, .out_sizes = &out_sizes});
}

Work MpiGroup::barrier() { return post({.kind = CollectiveKind::kBarrier}); }

}  // namespace gantry

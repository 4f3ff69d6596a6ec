#include "gantry/comm/mpi/mpi_group.h"

#include <torch/torch.h>

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
bool MpiGroup::shares_memory(const Collective& call) const {
  if (!channel_->ring() || channel_->host_place().alone) return channel_->ring() != nullptr;
  return call.kind == OperationKind::kAllReduce &&
         call.target->numel() * static_cast<std::int64_t>(call.target->element_size()) >
             channel_->engine()->limits().direct_bytes;
}

template <class Operation>
Work MpiGroup::begin(OperationRing<Operation>& ring, const Collective& call) {
  std::shared_ptr<Operation> operation = idle_one(ring, channel_);
  operation->call().fill(call, collectives_++);
  operation->begin();
  channel_->engine()->post(operation);
  return Work(std::move(operation));
}

Work MpiGroup::start(const Collective& call) {
  call.check(rank(), size());
  channel_->engine()->throw_if_failed();
  return shares_memory(call) ? begin(shared_, call) : begin(messages_, call);
}

Work MpiGroup::send(const torch::Tensor& tensor, int to, const Tag& tag) {
  return post_send(tensor, SentMemory::kCopied, to, tag);
}

Work MpiGroup::hand_over(const torch::Tensor& tensor, int to, const Tag& tag) {
  return post_send(tensor, SentMemory::kGivenAway, to, tag);
}

Work MpiGroup::post_send(const torch::Tensor& tensor, SentMemory memory, int to, const Tag& tag) {
  check_rank(to, size(), "send");
  if (tensor.defined()) check_on_cpu(tensor.device(), "send", "mpi");
  channel_->engine()->post(make_send(sends_, channel_, tensor, memory, to, tag, payloads_++));
  return {};
}

Work MpiGroup::recv(const TensorSpec& spec, int from, const Tag& tag) {
  check_rank(from, size(), "recv");
  check_on_cpu(spec.device, "recv", "mpi");
  auto operation = make_receive(receives_, channel_, spec, from, tag);
  channel_->engine()->post(operation);
  return Work(std::move(operation));
}

}  // namespace gantry

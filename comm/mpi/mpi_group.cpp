#include "gantry/comm/mpi/mpi_group.h"

#include <fmt/format.h>

#include "gantry/comm/group_calls.h"
#include "gantry/comm/mpi/call_mismatch.h"
#include "gantry/comm/mpi/collective_plans.h"
#include "gantry/comm/mpi/mpi_messages.h"
#include "gantry/comm/reduce_kernels.h"

namespace gantry {
namespace {

class MpiCollective final : public MpiOperation {
 public:
  MpiCollective(std::shared_ptr<MpiChannel> channel, CollectiveCall call, Plan plan)
      : MpiOperation(channel->engine()),
        channel_(std::move(channel)),
        call_(std::move(call)),
        plan_(std::move(plan)),
        tag_(channel_->data_tags().collective(call_.sequence, call_.code.encode())) {}

 protected:
  bool advance() override {
    auto& phases = plan_.phases;
    if (next_ > 0) reduce(phases[next_ - 1]);
    if (next_ == phases.size()) {
      plan_ = {};  // its scratch is someone else's now
      return true;
    }
    const Phase& phase = phases[next_++];
    for (const Transfer& part : phase.receives)
      engine().receive(*this, part.data, part.bytes, part.peer, tag_, channel_->data());
    for (const Transfer& part : phase.sends)
      engine().send(*this, part.data, part.bytes, part.peer, tag_, channel_->data());
    return false;
  }
  void finish() override { call_.give_result(); }
  std::string describe_pending(const std::vector<int>& missing) override {
    return fmt::format("{}, number {} of group '{}', which {}", call_.describe(), call_.sequence, channel_->label(),
                       missing.empty() ? "others have not taken their parts of"
                                       : channel_->describe_members(missing) + " has not joined");
  }
  std::string describe_mismatch(int peer, std::int64_t expected, std::int64_t received) override {
    return describe_sizes(*channel_, call_, peer, expected, received);
  }
  std::string find_mismatch(const std::vector<int>& missing) override {
    return find_other_call(*channel_, call_, missing);
  }

 private:
  void reduce(const Phase& phase) {
    for (const Reduction& sum : phase.reductions)
      reduce_span(sum.out, sum.inputs.data(), static_cast<int>(sum.inputs.size()), sum.elements, call_.code.dtype,
                  call_.code.op);
  }

  std::shared_ptr<MpiChannel> channel_;
  CollectiveCall call_;
  Plan plan_;
  const int tag_;
  std::size_t next_ = 0;
};

std::vector<std::int64_t> in_bytes(std::vector<std::int64_t> elements, std::int64_t item) {
  for (std::int64_t& count : elements) count *= item;
  return elements;
}

Plan plan_of(const Member& me, const CollectiveCall& call) {
  switch (call.code.kind) {
    case CollectiveKind::kAllReduce:
      return plan_all_reduce(me, call.out, call.elements, call.item);
    case CollectiveKind::kAllGather:
      return plan_all_gather(me, call.out, call.in, in_bytes(call.parts, call.item));
    case CollectiveKind::kReduceScatter:
      return plan_reduce_scatter(me, call.out, call.in, call.parts, call.item);
    case CollectiveKind::kBroadcast:
      return plan_broadcast(me, call.out, call.bytes(), call.root);
    case CollectiveKind::kAllToAll:
      return plan_all_to_all(me, call.out, call.in, in_bytes(call.other_parts, call.item),
                             in_bytes(call.parts, call.item));
    case CollectiveKind::kBarrier:
      return plan_barrier(me);
  }
  return {};
}

}  // namespace

// Between the hosts of a group, small sums and everything else go as messages from each to each.
bool MpiGroup::shares_memory(const CollectiveArguments& call) const {
  if (!channel_->ring() || channel_->host_place().alone) return channel_->ring() != nullptr;
  return call.kind == CollectiveKind::kAllReduce &&
         call.target->numel() * static_cast<std::int64_t>(call.target->element_size()) >
             channel_->engine()->limits().direct_bytes;
}

std::shared_ptr<SharedCollective> MpiGroup::idle_operation() {
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    next_ = (next_ + 1) % operations_.size();
    if (operations_[next_].use_count() > 1 || !operations_[next_]->idle()) continue;
    std::atomic_thread_fence(std::memory_order_acquire);  // after what the last other holder did
    return operations_[next_];
  }
  operations_.push_back(std::make_shared<SharedCollective>(channel_));
  return operations_.back();
}

Work MpiGroup::post(const CollectiveArguments& arguments) {
  RECORD_FUNCTION(collective_label(arguments.kind), (std::vector<c10::IValue>{arguments.in       ? *arguments.in
                                                                              : arguments.target ? *arguments.target
                                                                                                 : torch::Tensor()}));
  const auto& engine = channel_->engine();
  engine->throw_if_failed();
  if (shares_memory(arguments)) {
    auto operation = idle_operation();
    operation->call().fill(arguments, collectives_++);
    operation->begin();
    engine->post(operation);
    return Work(std::move(operation));
  }
  CollectiveCall call;
  call.fill(arguments, collectives_++);
  const MpiLimits& limits = engine->limits();
  Plan plan = plan_of({rank(), size(), limits.direct_bytes, limits.segment_bytes}, call);
  auto operation = std::make_shared<MpiCollective>(channel_, std::move(call), std::move(plan));
  engine->post(operation);
  return Work(std::move(operation));
}

Work MpiGroup::send(const torch::Tensor& tensor, int to, const Tag& tag) {
  check_rank(to, size(), "send");
  if (tensor.defined()) check_on_cpu(tensor, "send");
  channel_->engine()->post(make_send(sends_, channel_, tensor, to, tag, payloads_++));
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

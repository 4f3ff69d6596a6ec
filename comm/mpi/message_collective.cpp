#include "gantry/comm/mpi/message_collective.h"

#include <algorithm>

#include "gantry/comm/mpi/call_mismatch.h"
#include "gantry/comm/reduce_kernels.h"

namespace gantry {

void MessageCollective::begin() {
  restart();
  begun_ = true;
  next_ = 0;
  tag_ = channel_->data_tags().collective(call_.sequence, call_.code.encode());
  plan();
}

void MessageCollective::plan() {
  const MpiLimits& limits = engine().limits();
  const Member me{channel_->rank(), channel_->size(), limits.direct_bytes, limits.segment_bytes};
  plan_.clear();
  switch (call_.code.kind) {
    case OperationKind::kAllReduce:
      return plan_all_reduce(plan_, me, call_.out, call_.elements, call_.item, slices_);
    case OperationKind::kAllGather:
      return plan_all_gather(plan_, me, call_.out, call_.in, call_.parts, call_.item);
    case OperationKind::kReduceScatter:
      return plan_reduce_scatter(plan_, me, call_.out, call_.in, call_.parts, call_.item);
    case OperationKind::kBroadcast:
      return plan_broadcast(plan_, me, call_.out, call_.bytes(), call_.root);
    case OperationKind::kAllToAll:
      return plan_all_to_all(plan_, me, call_.out, call_.in, call_.other_parts, call_.parts, call_.item);
    default:
      return plan_barrier(plan_, me);
  }
}

bool MessageCollective::advance() {
  if (next_ > 0)
    for (const Reduction& sum : plan_.reductions(next_ - 1))
      reduce_span(sum.out, plan_.inputs(sum), channel_->size(), sum.elements, call_.code.dtype, call_.code.op);
  if (next_ == plan_.phases()) {
    plan_.clear();  // its scratch is someone else's now
    return true;
  }
  const std::size_t phase = next_++;
  for (const Transfer& part : plan_.receives(phase))
    engine().receive(*this, part.data, part.bytes, part.peer, tag_, channel_->data());
  for (const Transfer& part : plan_.sends(phase))
    engine().send(*this, part.data, part.bytes, part.peer, tag_, channel_->data());
  return false;
}

std::string MessageCollective::describe_pending(const std::vector<int>& missing) {
  // After the first phase, and from another member of a broadcast's tree than its root.
  const bool told_by_root = std::find(missing.begin(), missing.end(), call_.root) != missing.end();
  const bool passed_on = next_ > 1 || (call_.code.kind == OperationKind::kBroadcast && !told_by_root);
  return describe_awaited(*channel_, call_, missing, passed_on);
}

std::vector<int> MessageCollective::awaited_ranks(const std::vector<int>& missing) {
  return channel_->world_ranks(missing);
}

std::string MessageCollective::describe_mismatch(int peer, std::int64_t expected, std::int64_t received) {
  return describe_sizes(*channel_, call_, peer, expected, received);
}

std::string MessageCollective::find_mismatch(const std::vector<int>& missing) {
  return find_other_call(*channel_, call_, missing);
}

}  // namespace gantry

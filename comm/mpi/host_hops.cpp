// How a shared all_reduce passes running sums and results between hosts.
#include <cstring>

#include "gantry/comm/mpi/shared_collective.h"
#include "gantry/comm/reduce_kernels.h"

namespace gantry {

void SharedCollective::expect_hops(std::int64_t index) {
  if (!owns_slice()) return;
  const Slice mine = slice(index);
  const HostPlace& place = channel_->host_place();
  if (place.previous >= 0)
    engine().receive(*this, running(index), mine.elements * sum_item(call_.code.dtype), place.previous, tag_,
                     channel_->data(),
                     /*exact=*/true, &hop(index).running_in);
  if (place.next >= 0)
    engine().receive(*this, slot(ring_.me(), index) + mine.at, mine.elements * call_.item, place.next, tag_,
                     channel_->data(), /*exact=*/true, &hop(index).result_in);
}

bool SharedCollective::step_hops() {
  if (!owns_slice()) {
    // Who owns nothing is through with a sum as soon as it is called for.
    if (summed_ == filled_) return false;
    ring_.set_summed(round(summed_++));
    return true;
  }
  bool moved = false;
  if (extended_ < filled_ && hop(extended_).running_in == 0 && ring_.all_filled(round(extended_))) {
    check_heads();
    extend_running(extended_++);
    moved = true;
  }
  const bool last = channel_->host_place().next < 0;
  if (summed_ < extended_ && (last || hop(summed_).result_in == 0)) {
    pass_result(summed_);
    ring_.set_summed(round(summed_++));
    channel_->wake_host();
    moved = true;
  }
  return moved;
}

// Adds this host's to the sum of the hosts before it.
void SharedCollective::extend_running(std::int64_t index) {
  const Slice mine = slice(index);
  for (int member = 0; member < ring_.members(); ++member)
    inputs_[member] = member == ring_.me() ? call_.in + mine.offset : slot(member, index) + mine.at;
  const HostPlace& place = channel_->host_place();
  extend_sum(running(index), place.previous >= 0, inputs_.data(), ring_.members(), mine.elements, call_.code.dtype,
             call_.code.op);
  if (place.next >= 0)
    engine().send(*this, running(index), mine.elements * sum_item(call_.code.dtype), place.next, tag_, channel_->data(),
                  &hop(index).running_out);
  else
    round_sum(slot(ring_.me(), index) + mine.at, running(index), mine.elements, call_.code.dtype);
}

// The result lies in the slot: to the caller's tensor and to the host before.
void SharedCollective::pass_result(std::int64_t index) {
  const Slice mine = slice(index);
  const char* result = slot(ring_.me(), index) + mine.at;
  if (mine.elements > 0) std::memcpy(call_.out + mine.offset, result, mine.elements * call_.item);
  const HostPlace& place = channel_->host_place();
  if (place.previous >= 0)
    engine().send(*this, result, mine.elements * call_.item, place.previous, tag_, channel_->data(),
                  &hop(index).result_out);
}

}  // namespace gantry

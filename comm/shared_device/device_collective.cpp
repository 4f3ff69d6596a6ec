#include "gantry/comm/shared_device/device_collective.h"

#include <fmt/format.h>
#include <numeric>

#include <c10/core/StreamGuard.h>

#include "gantry/comm/device_sum.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

std::int64_t sum_before(const std::vector<std::int64_t>& parts, int member) {
  return std::accumulate(parts.begin(), parts.begin() + member, std::int64_t{0});
}

}  // namespace

DeviceCollective::DeviceCollective(std::shared_ptr<SharedDeviceJob> job, std::shared_ptr<GroupChannel> channel)
    : ProcessCollective(std::move(channel)),
      job_(std::move(job)),
      stream_(job_->current_stream()),
      end_(job_->device().type()) {}

void DeviceCollective::prepare() {
  const auto size = static_cast<std::size_t>(channel_->size());
  given_.resize(size);
  offers_.resize(size);
  signals_.resize(size);
}

bool DeviceCollective::advance() {
  // Any thread may advance the operation, with any current stream. The work belongs to the stream of the
  // call.
  const c10::StreamGuard on_stream(stream_);
  const torch::NoGradGuard no_grad;
  const bool reduces_all = call_.code.kind == OperationKind::kAllReduce;
  switch (step_++) {
    case 0:
      offer();
      return false;
    case 1:
      check_offers();
      for (int member = 0; member < channel_->size(); ++member)
        if (member != channel_->rank()) job_->follow(stream_, world_rank(member), offers_[member].ready);
      if (reduces_all || call_.code.kind == OperationKind::kReduceScatter)
        sum_part();
      else
        read_parts();
      tell_all();
      return false;
    case 2:
      follow_all();
      if (reduces_all) {
        read_sums();
        tell_all();
        return false;
      }
      break;
    default:
      follow_all();
  }
  end_.record(stream_);
  return true;
}

void DeviceCollective::offer() {
  const SharedPlace place = job_->find_place(call_.in);
  const SharedSignal ready = job_->signal(stream_);
  for (int member = 0; member < channel_->size(); ++member) {
    given_[member] = offer_for(member);
    given_[member].place = place;
    given_[member].ready = ready;
    if (member == channel_->rank()) {
      offers_[member] = given_[member];
      continue;
    }
    engine().receive(*this, &offers_[member], sizeof(Offer), member, tag_, channel_->data());
    engine().send(*this, &given_[member], sizeof(Offer), member, tag_, channel_->data());
  }
}

void DeviceCollective::tell_all() {
  notified_ = job_->signal(stream_);
  for (int member = 0; member < channel_->size(); ++member) {
    if (member == channel_->rank()) continue;
    engine().receive(*this, &signals_[member], sizeof(SharedSignal), member, tag_, channel_->data());
    engine().send(*this, &notified_, sizeof(SharedSignal), member, tag_, channel_->data());
  }
}

void DeviceCollective::follow_all() {
  for (int member = 0; member < channel_->size(); ++member)
    if (member != channel_->rank()) job_->follow(stream_, world_rank(member), signals_[member]);
}

DeviceCollective::Offer DeviceCollective::offer_for(int member) const {
  const int me = channel_->rank();
  switch (call_.code.kind) {
    case OperationKind::kAllReduce:
      return {
          .begin = slice_begin(member), .count = slice_begin(member + 1) - slice_begin(member), .full = call_.elements};
    case OperationKind::kBroadcast:
      return {.count = me == call_.root ? call_.elements : 0, .full = call_.elements, .root = call_.root};
    case OperationKind::kAllGather:
      return {.count = call_.parts[me]};
    default:  // reduce_scatter and all_to_all
      return {.begin = sum_before(call_.parts, member), .count = call_.parts[member]};
  }
}

std::int64_t DeviceCollective::expected_from(int member) const {
  const int me = channel_->rank();
  switch (call_.code.kind) {
    case OperationKind::kAllReduce:
      return slice_begin(me + 1) - slice_begin(me);
    case OperationKind::kBroadcast:
      return member == call_.root ? call_.elements : 0;
    case OperationKind::kAllGather:
      return call_.parts[member];
    case OperationKind::kAllToAll:
      return call_.other_parts[member];
    default:
      return call_.parts[me];
  }
}

void DeviceCollective::check_offers() {
  const auto of_root = [&](std::int64_t root) { return fmt::format("{} of root {}", call_.describe(), root); };
  for (int member = 0; member < channel_->size(); ++member) {
    const Offer& offer = offers_[member];
    const bool is_same = offer.full == offers_[channel_->rank()].full && offer.root == call_.root;
    if (is_same && offer.count == expected_from(member)) continue;
    const std::int64_t mine = is_same ? expected_from(member) : call_.elements;
    const std::int64_t theirs = is_same ? offer.count : offer.full;
    throw PeerError(channel_->describe_member(channel_->rank()) + ": " +
                    (mine != theirs ? describe_mismatch(member, mine * call_.item, theirs * call_.item)
                                    : describe_calls(of_root(call_.root), member, of_root(offer.root))));
  }
}

torch::Tensor DeviceCollective::own(char* memory, std::int64_t begin, std::int64_t count) const {
  return job_->at(memory + begin * call_.item, count, call_.code.dtype);
}

torch::Tensor DeviceCollective::offered(int member, std::int64_t begin, std::int64_t count) {
  char* memory = member == channel_->rank() ? call_.in : job_->reach(world_rank(member), offers_[member].place);
  return own(memory, begin, count);
}

// Copies the offered range of every member, one after the other.
void DeviceCollective::read_parts() {
  std::int64_t at = 0;
  for (int member = 0; member < channel_->size(); ++member) {
    const auto [begin, count] = std::pair(offers_[member].begin, offers_[member].count);
    const bool in_place = member == channel_->rank() && call_.in + begin * call_.item == call_.out + at * call_.item;
    if (count > 0 && !in_place) own(call_.out, at, count).copy_(offered(member, begin, count));
    at += count;
  }
}

// Reduces this rank's slice or part into its place in the result.
void DeviceCollective::sum_part() {
  const int me = channel_->rank();
  const auto [begin, count] = std::pair(offers_[me].begin, offers_[me].count);
  if (count == 0) return;
  std::vector<torch::Tensor> terms;
  for (int member = 0; member < channel_->size(); ++member)
    terms.push_back(offered(member, offers_[member].begin, count));
  torch::Tensor out = own(call_.out, call_.code.kind == OperationKind::kAllReduce ? begin : 0, count);
  reduce_by_rank(out, terms, call_.code.op);
}

void DeviceCollective::read_sums() {
  for (int member = 0; member < channel_->size(); ++member) {
    const std::int64_t begin = slice_begin(member), count = slice_begin(member + 1) - begin;
    if (member != channel_->rank() && count > 0) own(call_.out, begin, count).copy_(offered(member, begin, count));
  }
}

void DeviceCollective::finish() {
  const c10::StreamGuard on_stream(stream_);
  ProcessCollective::finish();
  end_.record(stream_);  // marks the end of the copy to a target that is not contiguous
}

void DeviceCollective::precede_current() {
  const c10::Stream current = job_->current_stream();
  if (current != stream_) end_.block(current);
}

std::string DeviceCollective::describe_pending(const std::vector<int>& missing) {
  return describe_awaited(missing, /*passed_on=*/step_ > 1);
}

}  // namespace gantry

// What a shared collective does in its rounds.
#include <algorithm>
#include <cstring>

#include "gantry/comm/mpi/shared_collective.h"
#include "gantry/comm/reduce_kernels.h"

namespace gantry {
namespace {

constexpr std::int64_t kLine = 64;

std::int64_t whole_lines(std::int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

void copy(char* to, const char* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace

SharedCollective::Range SharedCollective::piece(std::int64_t elements, std::int64_t index, std::int64_t rounds) const {
  if (index >= rounds) return {elements, elements};
  const std::int64_t unit = std::max<std::int64_t>(1, kLine / call_.item);
  const std::int64_t units = (elements + unit - 1) / unit;
  return {std::min(elements, units * index / rounds * unit), std::min(elements, units * (index + 1) / rounds * unit)};
}

std::int64_t SharedCollective::place(const std::int64_t* elements, int part, std::int64_t index,
                                     std::int64_t rounds) const {
  std::int64_t bytes = 0;
  for (int before = 0; before < part; ++before)
    bytes += whole_lines(piece(elements[before], index, rounds).size() * call_.item);
  return bytes;
}

SharedCollective::Slice SharedCollective::slice(std::int64_t index) const {
  const int me = ring_.me();
  const Range range = piece(call_.parts[me], index, rounds_);
  return {range.size(), (offsets_[me] + range.begin) * call_.item, place(call_.parts.data(), me, index, rounds_)};
}

void SharedCollective::fill_pieces(std::int64_t index, std::int64_t rounds, int left_out) {
  char* to = slot(ring_.me(), index);
  for (int part = 0; part < static_cast<int>(call_.parts.size()); ++part) {
    const Range range = piece(call_.parts[part], index, rounds);
    const std::int64_t bytes = range.size() * call_.item;
    if (part != left_out) copy(to, call_.in + (offsets_[part] + range.begin) * call_.item, bytes);
    to += whole_lines(bytes);
  }
}

void SharedCollective::fill_piece(std::int64_t index, std::int64_t elements) {
  const Range range = piece(elements, index, rounds_);
  copy(slot(ring_.me(), index), call_.in + range.begin * call_.item, range.size() * call_.item);
}

void SharedCollective::fill(std::int64_t index) {
  const int me = ring_.me();
  switch (call_.code.kind) {
    case OperationKind::kAllReduce:
      if (whole_) return fill_piece(index, call_.elements);
      fill_pieces(index, rounds_, me);
      if (!channel_->host_place().alone) expect_hops(index);
      return;
    case OperationKind::kReduceScatter:
      return fill_pieces(index, rounds_, me);
    case OperationKind::kAllToAll:
      return fill_pieces(index, my_rounds_, me);
    case OperationKind::kAllGather:
      return fill_piece(index, call_.parts[me]);
    case OperationKind::kBroadcast:
      return me == call_.root ? fill_piece(index, call_.elements) : void();
    default:
      return;
  }
}

// Sums piece `index` of this rank's part of `in`, of which the others' lie in their slots, to `out`; in small steps,
// each copied to `copied_to` unless that is null.
void SharedCollective::sum_part(std::int64_t index, char* out, char* copied_to) {
  const int me = ring_.me();
  const Slice mine = slice(index);
  const char* own = call_.in + mine.offset;
  const std::int64_t bytes = mine.elements * call_.item;
  for (std::int64_t begin = 0; begin < bytes; begin += kReducePieceBytes) {
    const std::int64_t now = std::min(kReducePieceBytes, bytes - begin);
    for (int member = 0; member < ring_.members(); ++member)
      inputs_[member] = member == me ? own + begin : slot(member, index) + mine.at + begin;
    reduce_span(out + begin, inputs_.data(), ring_.members(), now / call_.item, call_.code.dtype, call_.code.op);
    if (copied_to) copy(copied_to + begin, out + begin, now);
  }
}

void SharedCollective::sum_slice(std::int64_t index) {
  const Slice mine = slice(index);
  sum_part(index, call_.out + mine.offset, slot(ring_.me(), index) + mine.at);
}

bool SharedCollective::step_sums() {
  if (!channel_->host_place().alone) return step_hops();
  if (summed_ == filled_ || !ring_.all_filled(round(summed_))) return false;
  check_heads();
  sum_slice(summed_);
  ring_.set_summed(round(summed_++));
  channel_->wake_host();
  return true;
}

void SharedCollective::drain(std::int64_t index) {
  const int me = ring_.me();
  switch (call_.code.kind) {
    case OperationKind::kAllReduce:
      return whole_ ? sum_whole(index) : drain_sums(index);
    case OperationKind::kReduceScatter:
      return sum_part(index, call_.out + piece(call_.parts[me], index, rounds_).begin * call_.item, nullptr);
    case OperationKind::kAllToAll:
      return drain_exchange(index);
    case OperationKind::kAllGather:
      for (int member = 0; member < ring_.members(); ++member) {
        const Range range = piece(call_.parts[member], index, rounds_);
        const char* from = member == me ? call_.in + range.begin * call_.item : slot(member, index);
        copy(call_.out + (offsets_[member] + range.begin) * call_.item, from, range.size() * call_.item);
      }
      return;
    case OperationKind::kBroadcast: {
      const Range range = piece(call_.elements, index, rounds_);
      if (me != call_.root)
        copy(call_.out + range.begin * call_.item, slot(call_.root, index), range.size() * call_.item);
      return;
    }
    default:
      return;
  }
}

void SharedCollective::sum_whole(std::int64_t index) {
  for (int member = 0; member < ring_.members(); ++member)
    inputs_[member] = member == ring_.me() ? call_.in : slot(member, index);
  reduce_span(call_.out, inputs_.data(), ring_.members(), call_.elements, call_.code.dtype, call_.code.op);
}

void SharedCollective::drain_sums(std::int64_t index) {
  for (int owner = 0; owner < static_cast<int>(call_.parts.size()); ++owner) {
    if (owner == ring_.me()) continue;
    const Range range = piece(call_.parts[owner], index, rounds_);
    copy(call_.out + (offsets_[owner] + range.begin) * call_.item,
         slot(owner, index) + place(call_.parts.data(), owner, index, rounds_), range.size() * call_.item);
  }
}

// Each sender has cut its parts into its own number of rounds.
void SharedCollective::drain_exchange(std::int64_t index) {
  const int me = ring_.me(), members = ring_.members();
  std::int64_t offset = 0;
  for (int member = 0; member < members; ++member) {
    const std::int64_t* parts = peer_parts_.data() + std::int64_t{member} * members;
    const Range range = piece(parts[me], index, peer_rounds_[member]);
    const char* from = member == me ? call_.in + (offsets_[me] + range.begin) * call_.item
                                    : slot(member, index) + place(parts, me, index, peer_rounds_[member]);
    copy(call_.out + (offset + range.begin) * call_.item, from, range.size() * call_.item);
    offset += parts[me];
  }
}

}  // namespace gantry

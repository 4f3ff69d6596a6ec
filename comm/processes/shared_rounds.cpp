#include "gantry/comm/processes/shared_rounds.h"

#include <algorithm>
#include <cstring>

#include "gantry/comm/reduce_kernels.h"

namespace gantry {
namespace {

constexpr std::int64_t kLine = 64;

std::int64_t whole_lines(std::int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

void copy(char* to, const char* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace

void SharedRounds::split(const HostPlace& place, std::int64_t direct_bytes) {
  const auto rounds_for = [&](std::int64_t bytes) {
    return std::max<std::int64_t>(1, (bytes + ring_.chunk_bytes() - 1) / ring_.chunk_bytes());
  };
  std::int64_t bytes = call_.bytes();
  sums_full_ = false;
  switch (call_.code.kind) {
    case OperationKind::kAllReduce: {
      sums_full_ = place.alone && bytes <= std::min(direct_bytes, ring_.chunk_bytes());
      for (int owner = 0; owner < place.slice_owners; ++owner)
        call_.parts.push_back(piece(call_.elements, owner, place.slice_owners).size());
      break;
    }
    case OperationKind::kAllGather:
      bytes = *std::max_element(call_.parts.begin(), call_.parts.end()) * call_.item;
      break;
    case OperationKind::kReduceScatter:
    case OperationKind::kAllToAll:
      bytes = 0;
      for (const std::int64_t part : call_.parts) bytes += part * call_.item;
      break;
    default:
      break;
  }
  own_rounds_ = rounds_ = rounds_for(bytes);
  offsets_.clear();
  std::int64_t offset = 0;
  for (const std::int64_t part : call_.parts) {
    offsets_.push_back(offset);
    offset += part;
  }
}

SharedRounds::Range SharedRounds::piece(std::int64_t elements, std::int64_t index, std::int64_t rounds) const {
  if (index >= rounds) return {elements, elements};
  const std::int64_t unit = std::max<std::int64_t>(1, kLine / call_.item);
  const std::int64_t units = (elements + unit - 1) / unit;
  return {std::min(elements, units * index / rounds * unit), std::min(elements, units * (index + 1) / rounds * unit)};
}

std::int64_t SharedRounds::place_of(const std::int64_t* elements, int part, std::int64_t index,
                                    std::int64_t rounds) const {
  std::int64_t bytes = 0;
  for (int before = 0; before < part; ++before)
    bytes += whole_lines(piece(elements[before], index, rounds).size() * call_.item);
  return bytes;
}

SharedRounds::Slice SharedRounds::slice(std::int64_t index) const {
  const int me = ring_.me();
  const Range range = piece(call_.parts[me], index, rounds_);
  return {range.size(), (offsets_[me] + range.begin) * call_.item, place_of(call_.parts.data(), me, index, rounds_)};
}

const void* const* SharedRounds::inputs_of_slice(std::int64_t index) {
  const Slice mine = slice(index);
  for (int member = 0; member < ring_.members(); ++member)
    inputs_[member] = member == ring_.me() ? call_.in + mine.offset : slot(member, index) + mine.at;
  return inputs_.data();
}

void SharedRounds::forget_peers() {
  peer_rounds_.clear();
  peer_parts_.clear();
}

void SharedRounds::learn_peer(std::int64_t rounds, const std::int64_t* sent) {
  rounds_ = std::max(rounds_, rounds);
  peer_rounds_.push_back(rounds);
  for (int to = 0; to < ring_.members(); ++to) peer_parts_.push_back(sent[to] / call_.item);
}

void SharedRounds::fill_pieces(std::int64_t index) {
  char* to = slot(ring_.me(), index);
  for (int part = 0; part < static_cast<int>(call_.parts.size()); ++part) {
    const Range range = piece(call_.parts[part], index, own_rounds_);
    const std::int64_t bytes = range.size() * call_.item;
    if (part != ring_.me()) copy(to, call_.in + (offsets_[part] + range.begin) * call_.item, bytes);
    to += whole_lines(bytes);
  }
}

void SharedRounds::fill_piece(std::int64_t index, std::int64_t elements) {
  const Range range = piece(elements, index, rounds_);
  copy(slot(ring_.me(), index), call_.in + range.begin * call_.item, range.size() * call_.item);
}

void SharedRounds::fill(std::int64_t index) {
  const int me = ring_.me();
  switch (call_.code.kind) {
    case OperationKind::kAllReduce:
      return sums_full_ ? fill_piece(index, call_.elements) : fill_pieces(index);
    case OperationKind::kReduceScatter:
    case OperationKind::kAllToAll:
      return fill_pieces(index);
    case OperationKind::kAllGather:
      return fill_piece(index, call_.parts[me]);
    case OperationKind::kBroadcast:
      return me == call_.root ? fill_piece(index, call_.elements) : void();
    default:
      return;
  }
}

// Reduces piece `index` of this rank's part to `out`: its own terms in `in`, and those of the other members
// in their slots. It works in small steps, and copies each step to `copied_to` unless that is null.
void SharedRounds::sum_part(std::int64_t index, char* out, char* copied_to) {
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

void SharedRounds::sum_slice(std::int64_t index) {
  const Slice mine = slice(index);
  sum_part(index, call_.out + mine.offset, slot(ring_.me(), index) + mine.at);
}

void SharedRounds::drain(std::int64_t index) {
  const int me = ring_.me();
  switch (call_.code.kind) {
    case OperationKind::kAllReduce:
      return sums_full_ ? sum_full(index) : drain_sums(index);
    case OperationKind::kReduceScatter:
      return sum_part(index, call_.out + piece(call_.parts[me], index, rounds_).begin * call_.item, nullptr);
    case OperationKind::kAllToAll:
      return drain_exchange(index);
    case OperationKind::kAllGather:
      return drain_gathered(index);
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

void SharedRounds::drain_gathered(std::int64_t index) {
  for (int member = 0; member < ring_.members(); ++member) {
    const Range range = piece(call_.parts[member], index, rounds_);
    const char* from = member == ring_.me() ? call_.in + range.begin * call_.item : slot(member, index);
    copy(call_.out + (offsets_[member] + range.begin) * call_.item, from, range.size() * call_.item);
  }
}

void SharedRounds::sum_full(std::int64_t index) {
  for (int member = 0; member < ring_.members(); ++member)
    inputs_[member] = member == ring_.me() ? call_.in : slot(member, index);
  reduce_span(call_.out, inputs_.data(), ring_.members(), call_.elements, call_.code.dtype, call_.code.op);
}

void SharedRounds::drain_sums(std::int64_t index) {
  for (int owner = 0; owner < static_cast<int>(call_.parts.size()); ++owner) {
    if (owner == ring_.me()) continue;
    const Range range = piece(call_.parts[owner], index, rounds_);
    copy(call_.out + (offsets_[owner] + range.begin) * call_.item,
         slot(owner, index) + place_of(call_.parts.data(), owner, index, rounds_), range.size() * call_.item);
  }
}

// Each sender splits its parts into its own number of rounds.
void SharedRounds::drain_exchange(std::int64_t index) {
  const int me = ring_.me(), members = ring_.members();
  std::int64_t offset = 0;
  for (int member = 0; member < members; ++member) {
    const std::int64_t* parts = peer_parts_.data() + std::int64_t{member} * members;
    const Range range = piece(parts[me], index, peer_rounds_[member]);
    const char* from = member == me ? call_.in + (offsets_[me] + range.begin) * call_.item
                                    : slot(member, index) + place_of(parts, me, index, peer_rounds_[member]);
    copy(call_.out + (offset + range.begin) * call_.item, from, range.size() * call_.item);
    offset += parts[me];
  }
}

}  // namespace gantry

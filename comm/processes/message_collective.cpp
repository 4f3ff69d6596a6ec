#include "gantry/comm/processes/message_collective.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "gantry/comm/processes/doubling_rounds.h"
#include "gantry/comm/reduce_kernels.h"

namespace gantry {
namespace {

std::int64_t part_begin(std::int64_t length, std::int64_t index, std::int64_t parts) { return length * index / parts; }

void copy_own(char* out, const char* in, std::int64_t bytes) {
  if (bytes > 0 && out != in) std::memmove(out, in, static_cast<std::size_t>(bytes));
}

}  // namespace

void MessageCollective::prepare() {
  clear_plan();
  next_ = 0;
  const int me = channel_->rank();
  switch (call_.code.kind) {
    case OperationKind::kAllReduce:
      return plan_all_reduce();
    case OperationKind::kReduceScatter:
      return plan_reduce_scatter();
    case OperationKind::kAllGather:
      if (passes_on(std::accumulate(call_.parts.begin(), call_.parts.end(), std::int64_t{0}) * call_.item))
        return plan_doubling_all_gather();
      // The full part of this rank is sent to each member.
      slices_.assign(call_.parts.size(), call_.parts[me]);
      return plan_exchange(slices_, call_.parts);
    case OperationKind::kAllToAll:
      return plan_exchange(call_.parts, call_.other_parts);
    case OperationKind::kBroadcast:
      return plan_broadcast();
    default:
      return plan_barrier();
  }
}

void MessageCollective::clear_plan() {
  receives_.clear();
  sends_.clear();
  sums_.clear();
  inputs_.clear();
  phases_.clear();
  scratch_ = {};
}

bool MessageCollective::advance() {
  const Phase before = next_ > 1 ? phases_[next_ - 2] : Phase{};
  const Phase done = next_ > 0 ? phases_[next_ - 1] : Phase{};
  for (std::size_t i = before.sums; i < done.sums; ++i)
    reduce_span(sums_[i].out, inputs_.data() + sums_[i].first_input, channel_->size(), sums_[i].elements,
                call_.code.dtype, call_.code.op);
  if (next_ == phases_.size()) {
    clear_plan();  // frees the scratch memory for other operations
    return true;
  }
  const Phase& now = phases_[next_++];
  for (std::size_t i = done.receives; i < now.receives; ++i)
    engine().receive(*this, receives_[i].data, receives_[i].bytes, receives_[i].peer, tag_, channel_->data());
  for (std::size_t i = done.sends; i < now.sends; ++i)
    engine().send(*this, sends_[i].data, sends_[i].bytes, sends_[i].peer, tag_, channel_->data());
  return false;
}

// An exchange between all pairs has one phase, but as many messages per rank as members. Returns true if the data are
// passed on in the rounds of visit_doubling_rounds() instead: among many members, of which each gets `bytes` in total.
bool MessageCollective::passes_on(std::int64_t bytes) {
  const ProcessLimits& limits = engine().limits();
  return channel_->size() > limits.direct_ranks && bytes <= limits.direct_bytes * limits.direct_ranks;
}

// For large tensors: each rank reduces a slice and sends the result to all, in segments. While one segment is
// reduced, the results of the one before are sent.
void MessageCollective::plan_all_reduce() {
  const int size = channel_->size();
  if (size == 1) return;
  const ProcessLimits& limits = engine().limits();
  if (call_.bytes() <= limits.direct_bytes && size <= limits.direct_ranks) return plan_small_all_reduce();
  if (passes_on(call_.bytes() * size)) return plan_doubling_all_reduce();
  slices_.clear();
  for (int rank = 0; rank < size; ++rank)
    slices_.push_back(part_begin(call_.elements, rank + 1, size) - part_begin(call_.elements, rank, size));
  split_slices();
  for (std::int64_t segment = 0; segment <= segments_; ++segment) {
    if (segment < segments_) add_scatter(segment, call_.out + piece(channel_->rank(), segment).begin * call_.item);
    if (segment > 0) add_gather(segment - 1);
    end_phase();
  }
}

// Every rank gets the inputs of all ranks.
void MessageCollective::plan_small_all_reduce() {
  const std::int64_t bytes = call_.bytes();
  take_scratch(bytes * (channel_->size() - 1));
  char* place = scratch_.get();
  begin_sum(call_.out, call_.elements);
  for (int peer = 0; peer < channel_->size(); ++peer) {
    if (peer == channel_->rank()) {
      inputs_.push_back(call_.in);
      continue;
    }
    receives_.push_back({peer, place, bytes});
    sends_.push_back({peer, call_.in, bytes});
    inputs_.push_back(place);
    place += bytes;
  }
  end_phase();
}

// The same in rounds. The blocks of visit_doubling_rounds() are the inputs.
void MessageCollective::plan_doubling_all_reduce() {
  const int size = channel_->size(), me = channel_->rank();
  const std::int64_t bytes = call_.bytes();
  take_scratch(bytes * size);
  char* const blocks = scratch_.get();
  copy_own(blocks, call_.in, bytes);
  visit_doubling_rounds(me, size, [&](const DoublingRound& round) {
    sends_.push_back({round.to, blocks, round.blocks * bytes});
    receives_.push_back({round.from, blocks + round.held * bytes, round.blocks * bytes});
    if (round.held + round.blocks == size) {
      begin_sum(call_.out, call_.elements);
      for (int rank = 0; rank < size; ++rank) inputs_.push_back(blocks + (me - rank + size) % size * bytes);
    }
    end_phase();
  });
}

// The blocks of visit_doubling_rounds() are the parts. Those of a round are one range of the output, or two if they
// include the last rank and rank 0.
void MessageCollective::plan_doubling_all_gather() {
  const int size = channel_->size(), me = channel_->rank();
  offsets_.assign(1, 0);
  for (const std::int64_t part : call_.parts) offsets_.push_back(offsets_.back() + part * call_.item);
  copy_own(call_.out + offsets_[me], call_.in, call_.parts[me] * call_.item);
  const auto add = [&](std::vector<Transfer>& transfers, int peer, int last, int blocks) {
    const auto range = [&](int begin, int end) {
      transfers.push_back({peer, call_.out + offsets_[begin], offsets_[end] - offsets_[begin]});
    };
    const int first = last - blocks + 1;
    range(std::max(first, 0), last + 1);
    if (first < 0) range(first + size, size);
  };
  visit_doubling_rounds(me, size, [&](const DoublingRound& round) {
    add(sends_, round.to, me, round.blocks);
    add(receives_, round.from, round.from, round.blocks);
    end_phase();
  });
}

void MessageCollective::plan_reduce_scatter() {
  const int me = channel_->rank();
  if (channel_->size() == 1) return copy_own(call_.out, call_.in, call_.bytes());
  slices_.assign(call_.parts.begin(), call_.parts.end());
  split_slices();
  for (std::int64_t segment = 0; segment < segments_; ++segment) {
    add_scatter(segment, call_.out + part_begin(slices_[me], segment, segments_) * call_.item);
    end_phase();
  }
}

// The scratch memory has space for the largest piece of this rank's slice from each peer.
void MessageCollective::split_slices() {
  offsets_.assign(1, 0);
  for (const std::int64_t slice : slices_) offsets_.push_back(offsets_.back() + slice);
  const std::int64_t segment_bytes = engine().limits().segment_bytes;
  segments_ = std::max<std::int64_t>(1, (offsets_.back() * call_.item + segment_bytes - 1) / segment_bytes);
  const std::int64_t largest = (slices_[channel_->rank()] + segments_ - 1) / segments_;
  take_scratch(largest * call_.item * (channel_->size() - 1));
}

MessageCollective::Range MessageCollective::piece(int rank, std::int64_t segment) const {
  return {offsets_[rank] + part_begin(slices_[rank], segment, segments_),
          offsets_[rank] + part_begin(slices_[rank], segment + 1, segments_)};
}

// Each rank receives every member's piece of its slice, and reduces them to `out`.
void MessageCollective::add_scatter(std::int64_t segment, char* out) {
  const Range mine = piece(channel_->rank(), segment);
  char* place = scratch_.get();
  begin_sum(out, mine.size());
  for (int peer = 0; peer < channel_->size(); ++peer) {
    if (peer == channel_->rank()) {
      inputs_.push_back(call_.in + mine.begin * call_.item);
      continue;
    }
    const Range theirs = piece(peer, segment);
    receives_.push_back({peer, place, mine.size() * call_.item});
    sends_.push_back({peer, call_.in + theirs.begin * call_.item, theirs.size() * call_.item});
    inputs_.push_back(place);
    place += mine.size() * call_.item;
  }
}

void MessageCollective::add_gather(std::int64_t segment) {
  const Range mine = piece(channel_->rank(), segment);
  for (int peer = 0; peer < channel_->size(); ++peer) {
    if (peer == channel_->rank()) continue;
    const Range theirs = piece(peer, segment);
    receives_.push_back({peer, call_.out + theirs.begin * call_.item, theirs.size() * call_.item});
    sends_.push_back({peer, call_.out + mine.begin * call_.item, mine.size() * call_.item});
  }
}

// For all_to_all and all_gather: each member sends to each other one, and copies its own part. The `in_parts`
// are stored one after the other. In an all_gather they are the same part, at the beginning.
void MessageCollective::plan_exchange(const std::vector<std::int64_t>& in_parts,
                                      const std::vector<std::int64_t>& out_parts) {
  const bool is_gather = call_.code.kind == OperationKind::kAllGather;
  char *in = call_.in, *out = call_.out;
  for (int peer = 0; peer < channel_->size(); ++peer) {
    const std::int64_t sent = in_parts[peer] * call_.item, received = out_parts[peer] * call_.item;
    if (peer == channel_->rank()) {
      copy_own(out, in, sent);
    } else {
      receives_.push_back({peer, out, received});
      sends_.push_back({peer, in, sent});
    }
    out += received;
    if (!is_gather) in += sent;
  }
  end_phase();
}

// Sends down a binomial tree, in segments.
void MessageCollective::plan_broadcast() {
  const int size = channel_->size(), root = call_.root;
  const int place = (channel_->rank() - root + size) % size;  // place in the tree; the root has 0
  int reach = 1;  // the children are place + reach / 2, place + reach / 4, ...
  while (reach < size && !(place & reach)) reach *= 2;
  const int parent = place == 0 ? -1 : (place - reach + root) % size;

  const std::int64_t bytes = call_.bytes(), segment_bytes = engine().limits().segment_bytes;
  segments_ = size > 2 ? std::max<std::int64_t>(1, (bytes + segment_bytes - 1) / segment_bytes) : 1;
  const auto segment_of = [&](int peer, std::int64_t segment) {
    const std::int64_t begin = part_begin(bytes, segment, segments_);
    return Transfer{peer, call_.out + begin, part_begin(bytes, segment + 1, segments_) - begin};
  };
  for (std::int64_t segment = 0; segment <= segments_; ++segment) {
    if (parent >= 0 && segment < segments_) receives_.push_back(segment_of(parent, segment));
    for (int step = segment > 0 ? reach / 2 : 0; step > 0; step /= 2)
      if (place + step < size) sends_.push_back(segment_of((place + step + root) % size, segment - 1));
    end_phase();
  }
}

void MessageCollective::plan_barrier() {
  visit_doubling_rounds(channel_->rank(), channel_->size(), [&](const DoublingRound& round) {
    receives_.push_back({round.from, nullptr, 0});
    sends_.push_back({round.to, nullptr, 0});
    end_phase();
  });
}

std::string MessageCollective::describe_pending(const std::vector<int>& missing) {
  // Data are passed on after the first phase, and in a broadcast if the parent in the tree is not the root.
  const bool sent_by_root = std::find(missing.begin(), missing.end(), call_.root) != missing.end();
  const bool passed_on = next_ > 1 || (call_.code.kind == OperationKind::kBroadcast && !sent_by_root);
  return describe_awaited(missing, passed_on);
}

}  // namespace gantry

#include "gantry/comm/mpi/shared_collective.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// Steps of one collective before the others have their turn.
constexpr int kMostSteps = 32;

std::uint64_t hash_of(const std::vector<std::int64_t>& numbers) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a by whole numbers
  for (const std::int64_t number : numbers) hash = (hash ^ static_cast<std::uint64_t>(number)) * 1099511628211u;
  return hash;
}

}  // namespace

SharedCollective::SharedCollective(std::shared_ptr<MpiChannel> channel)
    : MpiOperation(channel->engine()), channel_(std::move(channel)), ring_(*channel_->ring()) {
  inputs_.resize(ring_.members());
}

void SharedCollective::begin() {
  restart();
  begun_ = true;
  checked_ = false;
  filled_ = extended_ = summed_ = drained_ = 0;
  turn_ = ring_.turns();
  tag_ = channel_->data_tags().collective(call_.sequence, call_.code.encode());
  cut();
  ring_.join();
}

void SharedCollective::cut() {
  const auto rounds_for = [&](std::int64_t bytes) {
    return std::max<std::int64_t>(1, (bytes + ring_.chunk_bytes() - 1) / ring_.chunk_bytes());
  };
  std::int64_t bytes = call_.bytes();
  whole_ = false;
  switch (call_.code.kind) {
    case OperationKind::kAllReduce: {
      whole_ = channel_->host_place().alone && bytes <= std::min(engine().limits().direct_bytes, ring_.chunk_bytes());
      const int owners = channel_->host_place().slice_owners;
      for (int owner = 0; owner < owners; ++owner) call_.parts.push_back(piece(call_.elements, owner, owners).size());
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
  my_rounds_ = rounds_ = rounds_for(bytes);
  offsets_.clear();
  std::int64_t offset = 0;
  for (const std::int64_t part : call_.parts) {
    offsets_.push_back(offset);
    offset += part;
  }
}

void SharedCollective::write_head() {
  RoundHead& head = ring_.head(ring_.me(), round(0));
  head.code = static_cast<std::uint32_t>(call_.code.encode());
  head.root = call_.root;
  head.rounds = my_rounds_;
  const bool exchange = call_.code.kind == OperationKind::kAllToAll;
  head.bytes = exchange                                           ? 0
               : call_.code.kind == OperationKind::kReduceScatter ? (offsets_.back() + call_.parts.back()) * call_.item
                                                                  : call_.bytes();
  head.parts = exchange ? 0 : hash_of(call_.parts);
  if (!exchange) return;
  std::int64_t* sent = ring_.part_bytes(ring_.me(), round(0));
  for (int peer = 0; peer < ring_.members(); ++peer) sent[peer] = call_.parts[peer] * call_.item;
}

void SharedCollective::check_heads() {
  if (checked_) return;
  checked_ = true;
  const RoundHead& own = ring_.head(ring_.me(), round(0));
  const bool exchange = call_.code.kind == OperationKind::kAllToAll;
  peer_rounds_.clear();
  peer_parts_.clear();
  for (int member = 0; member < ring_.members(); ++member) {
    const RoundHead& head = ring_.head(member, round(0));
    const int peer = channel_->host_place().members[member];
    if (head.code != own.code || head.root != own.root) {
      const bool roots = head.root != own.root;
      const std::string from_mine = roots ? fmt::format(" from {}", own.root) : "";
      const std::string from_theirs = roots ? fmt::format(" from {}", head.root) : "";
      throw PeerError(describe_calls(*channel_, call_.describe() + from_mine, peer,
                                     describe_call_code(static_cast<int>(head.code)) + from_theirs));
    }
    const std::int64_t theirs = exchange ? ring_.part_bytes(member, round(0))[ring_.me()] : head.bytes;
    const std::int64_t mine = exchange ? call_.other_parts[member] * call_.item : own.bytes;
    if (theirs != mine) throw PeerError(describe_mismatch(peer, mine, theirs));
    if (head.parts != own.parts)
      throw PeerError(fmt::format("group '{}': {} and {} called {} with different sizes by rank", channel_->label(),
                                  channel_->describe_member(channel_->rank()), channel_->describe_member(peer),
                                  call_.describe()));
    if (!exchange) continue;
    // Copied: the member's next collective may write its head while others are still at this one.
    rounds_ = std::max(rounds_, head.rounds);
    peer_rounds_.push_back(head.rounds);
    const std::int64_t* sent = ring_.part_bytes(member, round(0));
    for (int to = 0; to < ring_.members(); ++to) peer_parts_.push_back(sent[to] / call_.item);
  }
}

bool SharedCollective::advance() {
  if (!ring_.my_turn(turn_)) return false;
  first_round_ = ring_.first_round();
  for (int step = 0; step < kMostSteps; ++step) {
    bool moved = false;
    if (may_fill()) {
      fill(filled_);
      if (filled_ == 0) write_head();
      ring_.set_filled(round(filled_++));
      channel_->wake_host();
      moved = true;
    }
    if (sums_slices() && step_sums()) moved = true;
    if (may_drain()) {
      check_heads();
      drain(drained_);
      ring_.set_drained(round(drained_++));
      channel_->wake_host();
      moved = true;
    }
    // An all_to_all learns by its first round how many there are.
    if (checked_ && drained_ == rounds_ && requests() == 0) {
      ring_.end_turn(rounds_);
      return true;
    }
    if (!moved) return false;
    engine().note_move();
  }
  return false;
}

bool SharedCollective::may_fill() {
  if (filled_ == rounds_ || filled_ - drained_ == HostRing::kDepth) return false;
  // What is sent from the round's memory must have left.
  if (hop(filled_).result_out > 0 || hop(filled_).running_out > 0) return false;
  return ring_.is_free(round(filled_));
}

bool SharedCollective::may_drain() const {
  if (sums_slices()) return drained_ < summed_ && ring_.all_summed(round(drained_));
  return drained_ < filled_ && ring_.all_filled(round(drained_));
}

// Members of this host that have not joined, and those of others from whom a message is still to come.
std::vector<int> SharedCollective::absent(const std::vector<int>& missing) const {
  std::vector<int> absent;
  for (int member = 0; member < ring_.members(); ++member)
    if (!ring_.joined(member, turn_)) absent.push_back(channel_->host_place().members[member]);
  for (const int peer : missing)
    if (std::find(absent.begin(), absent.end(), peer) == absent.end()) absent.push_back(peer);
  return absent;
}

std::string SharedCollective::describe_pending(const std::vector<int>& missing) {
  return describe_awaited(*channel_, call_, absent(missing), /*passed_on=*/!missing.empty());
}

std::vector<int> SharedCollective::awaited_ranks(const std::vector<int>& missing) {
  return channel_->world_ranks(absent(missing));
}

std::string SharedCollective::describe_mismatch(int peer, std::int64_t expected, std::int64_t received) {
  return describe_sizes(*channel_, call_, peer, expected, received);
}

}  // namespace gantry

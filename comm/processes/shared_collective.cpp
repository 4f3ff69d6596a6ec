#include "gantry/comm/processes/shared_collective.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <numeric>

#include "gantry/comm/reduce_kernels.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

// Maximum number of steps of one collective before the others are advanced.
constexpr int kMostSteps = 32;

std::uint64_t hash_of(const std::vector<std::int64_t>& numbers) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a over full numbers instead of bytes
  for (const std::int64_t number : numbers) hash = (hash ^ static_cast<std::uint64_t>(number)) * 1099511628211u;
  return hash;
}

}  // namespace

void SharedCollective::prepare() {
  checked_ = false;
  filled_ = extended_ = summed_ = drained_ = 0;
  turn_ = ring_.turns();
  rounds_.split(channel_->host_place(), engine().limits().direct_bytes);
  ring_.join();
}

void SharedCollective::write_head() {
  RoundHead& head = ring_.head(ring_.me(), rounds_.round(0));
  head.code = static_cast<std::uint32_t>(call_.code.encode());
  head.root = call_.root;
  head.rounds = rounds_.own_count();
  const bool exchange = call_.code.kind == OperationKind::kAllToAll;
  const bool scatter = call_.code.kind == OperationKind::kReduceScatter;
  const std::int64_t full = std::accumulate(call_.parts.begin(), call_.parts.end(), std::int64_t{0}) * call_.item;
  head.bytes = exchange ? 0 : scatter ? full : call_.bytes();
  head.parts = exchange ? 0 : hash_of(call_.parts);
  if (!exchange) return;
  std::int64_t* sent = ring_.part_bytes(ring_.me(), rounds_.round(0));
  for (int peer = 0; peer < ring_.members(); ++peer) sent[peer] = call_.parts[peer] * call_.item;
}

void SharedCollective::check_heads() {
  if (checked_) return;
  checked_ = true;
  rounds_.forget_peers();
  for (int member = 0; member < ring_.members(); ++member) {
    check_head(member);
    // Copied, because the member's next collective may overwrite its head while others still use this one.
    if (call_.code.kind == OperationKind::kAllToAll)
      rounds_.learn_peer(ring_.head(member, rounds_.round(0)).rounds, ring_.part_bytes(member, rounds_.round(0)));
  }
}

void SharedCollective::check_head(int member) {
  const RoundHead& own = ring_.head(ring_.me(), rounds_.round(0));
  const RoundHead& head = ring_.head(member, rounds_.round(0));
  const int peer = channel_->host_place().members[member];
  if (head.code != own.code || head.root != own.root) {
    const bool roots = head.root != own.root;
    const auto from = [&](int root) { return roots ? fmt::format(" from {}", root) : ""; };
    throw PeerError(describe_calls(call_.describe() + from(own.root), peer,
                                   describe_call_code(static_cast<int>(head.code)) + from(head.root)));
  }
  const bool exchange = call_.code.kind == OperationKind::kAllToAll;
  const std::int64_t theirs = exchange ? ring_.part_bytes(member, rounds_.round(0))[ring_.me()] : head.bytes;
  const std::int64_t mine = exchange ? call_.other_parts[member] * call_.item : own.bytes;
  if (theirs != mine) throw PeerError(describe_mismatch(peer, mine, theirs));
  if (head.parts != own.parts)
    throw PeerError(fmt::format("group '{}': {} and {} called {} with different sizes by rank", channel_->label(),
                                channel_->describe_member(channel_->rank()), channel_->describe_member(peer),
                                call_.describe()));
}

bool SharedCollective::advance() {
  if (!ring_.my_turn(turn_)) return false;
  rounds_.begin(ring_.first_round());
  for (int steps = 0; steps < kMostSteps; ++steps) {
    const bool moved = step();
    // In an all_to_all the number of rounds is only known after the first round.
    if (checked_ && drained_ == rounds_.count() && requests() == 0) {
      ring_.end_turn(rounds_.count());
      return true;
    }
    if (!moved) return false;
    engine().note_move();
  }
  return false;
}

bool SharedCollective::step() {
  bool moved = false;
  if (may_fill()) {
    rounds_.fill(filled_);
    if (rounds_.sums_slices() && !channel_->host_place().alone) expect_hops(filled_);
    if (filled_ == 0) write_head();
    ring_.set_filled(rounds_.round(filled_++));
    channel_->wake_host();
    moved = true;
  }
  if (rounds_.sums_slices() && step_sums()) moved = true;
  if (may_drain()) {
    check_heads();
    rounds_.drain(drained_);
    ring_.set_drained(rounds_.round(drained_++));
    channel_->wake_host();
    moved = true;
  }
  return moved;
}

bool SharedCollective::may_fill() {
  if (filled_ == rounds_.count() || filled_ - drained_ == HostRing::kDepth) return false;
  // Earlier sends from the round's memory must have completed.
  if (hop(filled_).result_out > 0 || hop(filled_).running_out > 0) return false;
  return ring_.is_free(rounds_.round(filled_));
}

bool SharedCollective::may_drain() const {
  if (rounds_.sums_slices()) return drained_ < summed_ && ring_.all_summed(rounds_.round(drained_));
  return drained_ < filled_ && ring_.all_filled(rounds_.round(drained_));
}

bool SharedCollective::step_sums() {
  if (!channel_->host_place().alone) return step_hops();
  if (summed_ == filled_ || !ring_.all_filled(rounds_.round(summed_))) return false;
  check_heads();
  rounds_.sum_slice(summed_);
  ring_.set_summed(rounds_.round(summed_++));
  channel_->wake_host();
  return true;
}

void SharedCollective::expect_hops(std::int64_t index) {
  if (!owns_slice()) return;
  const SharedRounds::Slice mine = rounds_.slice(index);
  const HostPlace& place = channel_->host_place();
  if (place.previous >= 0)
    engine().receive(*this, running(index), mine.elements * sum_item(call_.code.dtype), place.previous, tag_,
                     channel_->data(),
                     /*exact=*/true, &hop(index).running_in);
  if (place.next >= 0)
    engine().receive(*this, rounds_.slot(ring_.me(), index) + mine.at, mine.elements * call_.item, place.next, tag_,
                     channel_->data(), /*exact=*/true, &hop(index).result_in);
}

bool SharedCollective::step_hops() {
  if (!owns_slice()) {
    // A member without a slice completes its part of a reduction at once.
    if (summed_ == filled_) return false;
    ring_.set_summed(rounds_.round(summed_++));
    return true;
  }
  bool moved = false;
  if (extended_ < filled_ && hop(extended_).running_in == 0 && ring_.all_filled(rounds_.round(extended_))) {
    check_heads();
    extend_running(extended_++);
    moved = true;
  }
  const bool last = channel_->host_place().next < 0;
  if (summed_ < extended_ && (last || hop(summed_).result_in == 0)) {
    pass_result(summed_);
    ring_.set_summed(rounds_.round(summed_++));
    channel_->wake_host();
    moved = true;
  }
  return moved;
}

// Adds this host's terms to the sum of the previous hosts.
void SharedCollective::extend_running(std::int64_t index) {
  const SharedRounds::Slice mine = rounds_.slice(index);
  const HostPlace& place = channel_->host_place();
  extend_sum(running(index), place.previous >= 0, rounds_.inputs_of_slice(index), ring_.members(), mine.elements,
             call_.code.dtype, call_.code.op);
  if (place.next >= 0)
    engine().send(*this, running(index), mine.elements * sum_item(call_.code.dtype), place.next, tag_, channel_->data(),
                  &hop(index).running_out);
  else
    round_sum(rounds_.slot(ring_.me(), index) + mine.at, running(index), mine.elements, call_.code.dtype);
}

// The result is in the slot. Copies it to the caller's tensor, and sends it to the previous host.
void SharedCollective::pass_result(std::int64_t index) {
  const SharedRounds::Slice mine = rounds_.slice(index);
  const char* result = rounds_.slot(ring_.me(), index) + mine.at;
  if (mine.elements > 0) std::memcpy(call_.out + mine.offset, result, mine.elements * call_.item);
  const HostPlace& place = channel_->host_place();
  if (place.previous >= 0)
    engine().send(*this, result, mine.elements * call_.item, place.previous, tag_, channel_->data(),
                  &hop(index).result_out);
}

// Returns the members of this host that have not joined, and other members whose messages are missing.
std::vector<int> SharedCollective::absent(const std::vector<int>& missing) const {
  std::vector<int> absent;
  for (int member = 0; member < ring_.members(); ++member)
    if (!ring_.joined(member, turn_)) absent.push_back(channel_->host_place().members[member]);
  for (const int peer : missing)
    if (std::find(absent.begin(), absent.end(), peer) == absent.end()) absent.push_back(peer);
  return absent;
}

std::string SharedCollective::describe_pending(const std::vector<int>& missing) {
  return describe_awaited(absent(missing), /*passed_on=*/!missing.empty());
}

std::vector<int> SharedCollective::awaited_ranks(const std::vector<int>& missing) {
  return channel_->world_ranks(absent(missing));
}

}  // namespace gantry

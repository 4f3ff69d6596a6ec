#include "gantry/diagnosis/rank_recorder.h"

#include <algorithm>
#include <ctime>

namespace gantry::recorder {
namespace {

std::int64_t now_of(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

std::int64_t monotonic_ns() { return now_of(CLOCK_MONOTONIC); }
std::int64_t utc_ns() { return now_of(CLOCK_REALTIME); }

std::size_t RankRecorder::MessageHash::operator()(const MessageKey& key) const {
  std::uint64_t hash = 0;
  for (const int part : {key.group, key.peer, static_cast<int>(key.sent), static_cast<int>(key.tag.kind), key.tag.stage,
                         key.tag.microbatch, key.tag.entry})
    hash = (hash ^ static_cast<std::uint32_t>(part)) * 0x9e3779b97f4a7c15u, hash ^= hash >> 32;
  return hash;
}

RankRecorder::RankRecorder(Identity identity, int entries)
    : identity_(std::move(identity)), ring_(static_cast<std::size_t>(entries)) {}

RankRecorder::Entry* RankRecorder::find(std::uint64_t number) {
  Entry& entry = ring_[number % ring_.size()];
  return number < posted_ && entry.number == number ? &entry : nullptr;
}

std::int64_t RankRecorder::next_sequence(const ObservedCall& call) {
  if (call.kind == Kind::kMakeGroup) return 0;
  if (!is_message(call.kind)) return groups_[call.group].collectives++;
  const MessageKey key{call.group, call.peer, call.kind == Kind::kSend, call.tag};
  if (const auto found = messages_.find(key); found != messages_.end()) return found->second++;
  if (messages_.size() >= kMostTags) return Operation::kNotCounted;
  messages_.emplace(key, 1);
  return 0;
}

std::uint64_t RankRecorder::post_locked(const ObservedCall& call, std::int64_t now) {
  const std::uint64_t number = posted_++;
  Entry& entry = ring_[number % ring_.size()];
  entry = {.number = number,
           .posted_ns = now,
           .finished_ns = 0,
           .sequence = next_sequence(call),
           .shape = {},
           .reduction = call.reduction,
           .dtype = call.dtype,
           .tag = call.tag,
           .group = call.group,
           .peer = call.peer,
           .dims = std::min(static_cast<int>(call.shape.size()), kMostDims),
           .kind = call.kind,
           .state = State::kPosted};
  std::copy_n(call.shape.begin(), entry.dims, entry.shape.begin());
  return number;
}

std::uint64_t RankRecorder::post(const ObservedCall& call) {
  const std::int64_t now = monotonic_ns();
  const std::lock_guard lock(mutex_);
  return post_locked(call, now);
}

int RankRecorder::begin_group(const std::string& label, const std::vector<int>& ranks, std::uint64_t& number) {
  const std::int64_t now = monotonic_ns();
  const std::lock_guard lock(mutex_);
  const auto same =
      std::count_if(groups_.begin(), groups_.end(), [&](const Group& other) { return other.ranks == ranks; });
  const int group = static_cast<int>(groups_.size());
  groups_.push_back({label, ranks, static_cast<int>(same), false, 0});
  number = post_locked({.group = group, .kind = Kind::kMakeGroup}, now);
  find(number)->state = State::kWaiting;
  return group;
}

void RankRecorder::made(int group, std::uint64_t number) {
  finish(number, State::kDone);
  const std::lock_guard lock(mutex_);
  groups_[group].made = true;
}

void RankRecorder::waits(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (Entry* entry = find(number)) entry->state = State::kWaiting;
}

void RankRecorder::finish(std::uint64_t number, State state) {
  const std::int64_t now = monotonic_ns();
  const std::lock_guard lock(mutex_);
  Entry* entry = find(number);
  if (!entry) return;
  entry->state = state;
  entry->finished_ns = now;
}

void RankRecorder::ended(const std::string& error) {
  const std::int64_t now = monotonic_ns();
  const std::lock_guard lock(mutex_);
  state_ = error.empty() ? RankState::kEnded : RankState::kFailed;
  error_ = error;
  ended_ns_ = now;
}

void RankRecorder::was_suspended(std::int64_t from_ns, std::int64_t until_ns) {
  const std::lock_guard lock(mutex_);
  stopped_from_ns_ = from_ns;
  stopped_until_ns_ = until_ns;
}

Operation RankRecorder::operation_of(const Entry& entry) const {
  return {entry.number,    entry.group,     entry.kind,
          entry.sequence,  entry.peer,      entry.tag,
          entry.reduction, entry.dtype,     {entry.shape.begin(), entry.shape.begin() + entry.dims},
          entry.state,     entry.posted_ns, entry.finished_ns};
}

RankRecord RankRecorder::snapshot() const {
  RankRecord record;
  record.identity = identity_;
  std::vector<Entry> ring;
  ring.reserve(ring_.size());  // the size is constant
  std::uint64_t posted = 0;
  {
    const std::lock_guard lock(mutex_);
    ring.assign(ring_.begin(), ring_.end());
    posted = posted_;
    record.groups = groups_;
    record.state = state_;
    record.error = error_;
    record.ended_ns = ended_ns_;
    record.stopped_from_ns = stopped_from_ns_;
    record.stopped_until_ns = stopped_until_ns_;
    record.written_ns = monotonic_ns();
  }
  record.written_utc_ns = utc_ns();
  const std::uint64_t kept = std::min<std::uint64_t>(posted, ring.size());
  record.forgotten = posted - kept;
  record.operations.reserve(kept);
  for (std::uint64_t number = posted - kept; number < posted; ++number)
    record.operations.push_back(operation_of(ring[number % ring.size()]));
  return record;
}

}  // namespace gantry::recorder

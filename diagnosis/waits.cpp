#include "gantry/diagnosis/waits.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

namespace gantry::recorder {
namespace {

constexpr std::size_t kMostOfARank = 16;  // threads of a rank that may be blocked; files may contain any number
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

std::int64_t elements(const Operation& operation) {
  // Without overflow, also for hostile files.
  return static_cast<std::int64_t>(std::accumulate(operation.shape.begin(), operation.shape.end(), std::uint64_t{1},
                                                   std::multiplies<std::uint64_t>()));
}

// Waits are reported up to this moment: afterwards operations fail one after the other, in an order without
// information.
std::int64_t first_failure_of(const RankRecord& record) {
  std::int64_t first = record.written_ns;
  for (const auto& operation : record.operations)
    if (operation.state == State::kFailed && operation.finished_ns > 0) first = std::min(first, operation.finished_ns);
  return first;
}

}  // namespace

Waits::Waits(const JobRecords& job) : job_(job) {
  horizon_ns_ = first_failure_ns_ = kNever;
  if (job.records.empty()) return;
  const std::string& host = job.records.begin()->second.identity.host;
  for (const auto& [rank, record] : job.records) one_host_ = one_host_ && record.identity.host == host;
  for (const auto& [rank, record] : job.records) {
    horizon_ns_ = std::min(horizon_ns_, common_time(record, record.written_ns));
    auto& by_key = operations_[rank];
    for (const auto& operation : record.operations) {
      by_key[key_of(operation, operation.group, operation.kind == Kind::kSend, operation.peer)] = &operation;
      if (operation.state == State::kFailed)
        first_failure_ns_ = std::min(first_failure_ns_, common_time(record, operation.finished_ns));
    }
  }
  horizon_ns_ = std::min(horizon_ns_, first_failure_ns_);
  find_blocked();
  for (auto& blocked : blocked_) find_awaited(blocked);
}

Waits::Key Waits::key_of(const Operation& operation, int group, bool sent, int peer) {
  if (!is_message(operation.kind)) {
    // The creation of a group is in addition to its collectives.
    return {group, operation.kind == Kind::kMakeGroup, -1, Tag::Kind::kUser, 0, 0, 0, operation.sequence};
  }
  const Tag& tag = operation.tag;
  return {group, sent, peer, tag.kind, tag.stage, tag.microbatch, tag.entry, operation.sequence};
}

std::int64_t Waits::common_time(const RankRecord& record, std::int64_t ns) const {
  return one_host_ ? ns : ns + (record.written_utc_ns - record.written_ns);
}

const RankRecord* Waits::record(int rank) const {
  const auto found = job_.records.find(rank);
  return found == job_.records.end() ? nullptr : &found->second;
}

const Group& Waits::group_of(int rank, const Operation& operation) const {
  return job_.records.at(rank).groups[operation.group];
}

const Operation* Waits::find(const RankRecord& record, const Key& key) const {
  const auto& operations = operations_.at(record.identity.rank);
  const auto found = operations.find(key);
  return found == operations.end() ? nullptr : found->second;
}

int Waits::place_of(const RankRecord& record, const Group& group) const {
  for (std::size_t i = 0; i < record.groups.size(); ++i)
    if (record.groups[i].instance == group.instance && record.groups[i].ranks == group.ranks)
      return static_cast<int>(i);
  return -1;
}

void Waits::find_blocked() {
  const auto longer = [](const Blocked& a, const Blocked& b) { return a.seconds > b.seconds; };
  for (const auto& [rank, record] : job_.records) {
    std::vector<Blocked> mine;
    const std::int64_t end = first_failure_of(record);
    for (const auto& operation : record.operations) {
      if (operation.state != State::kWaiting && operation.state != State::kFailed) continue;
      if (one_host_ && operation.posted_ns > horizon_ns_) continue;
      const std::int64_t until = operation.finished_ns > 0 ? operation.finished_ns : record.written_ns;
      const std::int64_t waited = std::max<std::int64_t>(0, std::min(until, end) - operation.posted_ns);
      mine.push_back({rank, &operation, static_cast<double>(waited) * 1e-9, {}});
    }
    std::stable_sort(mine.begin(), mine.end(), longer);
    if (mine.size() > kMostOfARank) mine.resize(kMostOfARank);
    blocked_.insert(blocked_.end(), mine.begin(), mine.end());
  }
  std::stable_sort(blocked_.begin(), blocked_.end(), longer);
}

const Blocked* Waits::blocked_of(int rank) const {
  const auto found = std::find_if(blocked_.begin(), blocked_.end(), [&](const auto& one) { return one.rank == rank; });
  return found == blocked_.end() ? nullptr : &*found;
}

bool Waits::failed_itself(const RankRecord& record) const {
  return record.state == RankState::kFailed && !blocked_of(record.identity.rank) &&
         common_time(record, record.ended_ns) <= first_failure_ns_;
}

bool Waits::has_ended(const RankRecord& record) const {
  return record.state == RankState::kEnded && (!one_host_ || record.ended_ns <= horizon_ns_);
}

bool Waits::was_stopped(const RankRecord& record) const {
  return one_host_ && record.stopped_from_ns <= horizon_ns_ && horizon_ns_ <= record.stopped_until_ns;
}

std::int64_t Waits::reported_until(const RankRecord& record) const {
  if (has_ended(record) || failed_itself(record)) return record.ended_ns;
  return one_host_ ? std::min(horizon_ns_, record.written_ns) : record.written_ns;
}

Cause Waits::cause_of(int rank) const {
  const RankRecord* known = record(rank);
  if (!known) return Cause::kNoFile;
  if (was_stopped(*known)) return Cause::kStopped;
  if (failed_itself(*known)) return Cause::kFailed;
  if (has_ended(*known)) return Cause::kEnded;
  return blocked_of(rank) ? Cause::kElsewhere : Cause::kOutside;
}

void Waits::find_awaited(Blocked& blocked) {
  if (is_message(blocked.operation->kind)) return look_at(blocked, blocked.operation->peer);
  const auto& members = group_of(blocked.rank, *blocked.operation).ranks;
  for (const int member : members)
    if (member != blocked.rank) look_at(blocked, member);
  if (!blocked.awaited.empty()) return;
  // No rank is missing: a device, or a link between devices, does not complete it.
  for (const int member : members)
    if (member != blocked.rank && has_called(blocked, member))
      blocked.awaited.push_back({member, Cause::kWithin, true});
}

// State of the other rank in the collective that a rank is blocked in, as far as its record goes back.
bool Waits::has_called(const Blocked& blocked, int other) const {
  const Operation& mine = *blocked.operation;
  const RankRecord* known = record(other);
  const int place = known ? place_of(*known, group_of(blocked.rank, mine)) : -1;
  return place >= 0 && find(*known, key_of(mine, place, mine.kind == Kind::kMakeGroup, blocked.rank));
}

void Waits::look_at(Blocked& blocked, int other) {
  const Operation& mine = *blocked.operation;
  const RankRecord* known = record(other);
  const int place = known ? place_of(*known, group_of(blocked.rank, mine)) : -1;
  if (place < 0) return blocked.awaited.push_back({other, cause_of(other), /*in_group=*/!known});
  if (mine.sequence == Operation::kNotCounted) return;

  const bool message = is_message(mine.kind), joins = mine.kind == Kind::kMakeGroup;
  const Operation* theirs =
      find(*known, key_of(mine, place, message ? mine.kind == Kind::kReceive : joins, blocked.rank));
  // The operation is not a message and precedes the entries of the ring, so it was completed.
  if (!theirs && !message && (joins || known->groups[place].collectives > mine.sequence)) return;
  const bool late = theirs && one_host_ && theirs->posted_ns > horizon_ns_;
  if (!theirs || late || theirs->state == State::kRefused)
    return blocked.awaited.push_back({other, cause_of(other), /*in_group=*/!joins});
  if (joins) return;
  if (!mismatch_)
    if (const auto what = difference(mine, *theirs)) mismatch_ = {*what, blocked.rank, other, &mine, theirs};
  // A device executes its collectives independently of the host's waits.
  const bool moves_on = !message && known->identity.backend == "nccl";
  if (message || (theirs->state == State::kPosted && !moves_on))
    blocked.awaited.push_back({other, Cause::kNotWaiting, true});
}

std::optional<Mismatch::What> Waits::difference(const Operation& mine, const Operation& theirs) const {
  if (is_message(mine.kind)) {
    const Operation& sent = mine.kind == Kind::kSend ? mine : theirs;
    const Operation& asked = mine.kind == Kind::kSend ? theirs : mine;
    if (sent.dtype.empty() || (sent.dtype == asked.dtype && sent.shape == asked.shape)) return std::nullopt;
    return Mismatch::What::kTensor;
  }
  if (mine.kind != theirs.kind) return Mismatch::What::kCall;
  if (mine.peer != theirs.peer) return Mismatch::What::kRoot;
  if (mine.dtype != theirs.dtype || mine.reduction != theirs.reduction) return Mismatch::What::kTensor;
  if (mine.kind != Kind::kAllToAll && elements(mine) != elements(theirs)) return Mismatch::What::kTensor;
  return std::nullopt;
}

bool Waits::was_asked(const RankRecord& sender, const Operation& send) const {
  const RankRecord* receiver = record(send.peer);
  const int place = receiver ? place_of(*receiver, sender.groups[send.group]) : -1;
  if (place < 0 || send.sequence == Operation::kNotCounted) return true;  // unknown
  if (find(*receiver, key_of(send, place, /*sent=*/false, sender.identity.rank))) return true;
  return receiver->forgotten > 0 &&
         common_time(sender, send.posted_ns) <= common_time(*receiver, receiver->operations.empty()
                                                                           ? receiver->written_ns
                                                                           : receiver->operations.front().posted_ns);
}

std::vector<const Operation*> Waits::unasked(int from, int to) const {
  std::vector<const Operation*> found;
  if (const RankRecord* sender = record(from))
    for (const auto& operation : sender->operations)
      if (operation.kind == Kind::kSend && operation.peer == to && operation.state != State::kRefused &&
          !was_asked(*sender, operation))
        found.push_back(&operation);
  return found;
}

std::vector<const Operation*> Waits::unasked(int from, int to, const Operation& like) const {
  auto found = unasked(from, to);
  const Group& group = group_of(to, like);
  std::erase_if(found, [&](const Operation* send) {
    const Group& other = group_of(from, *send);
    return other.ranks != group.ranks || other.instance != group.instance;
  });
  return found;
}

}  // namespace gantry::recorder

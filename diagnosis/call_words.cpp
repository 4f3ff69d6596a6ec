#include "gantry/diagnosis/call_words.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gantry::recorder {

std::string CallWords::name(int rank) const {
  const RankRecord* record = waits_.record(rank);
  return record && !record->identity.name.empty() ? record->identity.name : fmt::format("rank {}", rank);
}

std::string CallWords::describe_call(int rank, const Operation& operation) const {
  std::string text = describe(operation, waits_.group_of(rank, operation));
  if (is_message(operation.kind))
    text += operation.kind == Kind::kSend ? " to " : " from ", text += name(operation.peer);
  if (!operation.dtype.empty()) text += fmt::format(" ({})", describe_tensor(operation));
  return text;
}

std::string describe_as_call(const Operation& operation) {
  std::string text = name_of(operation.kind);
  if (!operation.dtype.empty()) text += " of " + describe_tensor(operation);
  if (!operation.reduction.empty()) text += fmt::format(" ({})", operation.reduction);
  if (operation.kind == Kind::kBroadcast) text += fmt::format(" from rank {}", operation.peer);
  return text;
}

std::string CallWords::describe_link(const Link& link) const {
  const Operation& operation = *link.blocked->operation;
  const Group& group = waits_.group_of(link.blocked->rank, operation);
  const std::string whom = name(link.awaited.rank);
  if (link.awaited.cause == Cause::kWithin) return fmt::format("{} with {}", with_tensor(operation, group), whom);
  if (operation.kind == Kind::kMakeGroup)
    return fmt::format("{} to join group '{}' of the ranks {}", whom, group.label, fmt::join(group.ranks, ", "));
  if (!is_message(operation.kind)) return fmt::format("{} to join {}", whom, with_tensor(operation, group));
  return fmt::format("{} to {} {} in group '{}'", whom, operation.kind == Kind::kReceive ? "send" : "take",
                     with_tensor(operation, group), group.label);
}

std::string with_tensor(const Operation& operation, const Group& group) {
  const std::string what = describe(operation, group);
  return operation.dtype.empty() ? what : fmt::format("{} ({})", what, describe_tensor(operation));
}

std::string CallWords::describe_end(const Link& link) const {
  const bool joins = link.blocked->operation->kind == Kind::kMakeGroup;
  return describe_state(link, link.awaited.in_group || joins ? "which" : "which never joined the group and");
}

std::string CallWords::describe_state(const Link& link, const std::string& subject) const {
  const RankRecord* record = waits_.record(link.awaited.rank);
  switch (link.awaited.cause) {
    case Cause::kNoFile:
      return subject + " left no file: it was killed or suspended, or wrote to another directory";
    case Cause::kStopped:
      return fmt::format("{} was suspended: its process did not run for {:.1f} s", subject,
                         static_cast<double>(record->stopped_until_ns - record->stopped_from_ns) * 1e-9);
    case Cause::kFailed:
      return subject + " failed: " + record->error;
    case Cause::kEnded:
      return subject + " has ended" + describe_last(*record);
    case Cause::kWithin:
      return subject + " is in it too: all its members have called it, but it does not complete";
    case Cause::kNotWaiting:
      return is_message(link.blocked->operation->kind)
                 ? subject + " has done so: the message is in flight"
                 : subject + " has called it, but is not in a wait that would complete it" + describe_last(*record);
    default:
      return subject + " is outside communication" + describe_last(*record);
  }
}

std::string CallWords::describe_last(const RankRecord& record) const {
  const std::int64_t until = waits_.reported_until(record);
  const auto last = std::find_if(record.operations.rbegin(), record.operations.rend(), [&](const Operation& one) {
    return one.state != State::kRefused && one.posted_ns <= until;
  });
  if (last == record.operations.rend()) return " and has called nothing";
  const bool over = last->finished_ns > 0 && last->finished_ns <= until;
  return fmt::format("; its last call, {}, was {} {:.1f} s earlier", describe_call(record.identity.rank, *last),
                     over ? name_of(last->state) : "made",
                     static_cast<double>(until - (over ? last->finished_ns : last->posted_ns)) * 1e-9);
}

}  // namespace gantry::recorder

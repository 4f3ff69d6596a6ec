#include "gantry/diagnosis/diagnosis.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "gantry/diagnosis/call_words.h"
#include "gantry/diagnosis/chains.h"

namespace gantry::recorder {
namespace {

constexpr std::size_t kMostLinks = 4;   // links of a chain that are listed
constexpr std::size_t kMostNotes = 5;   // further remarks of one kind that are listed
constexpr double kDeadlineShare = 0.9;  // share of the timeout, because a monitor checks only from time to time

class Examiner {
 public:
  Examiner(const JobRecords& job, double stuck_after) : job_(job), stuck_after_(stuck_after), waits_(job) {}

  Diagnosis examine() {
    Diagnosis diagnosis;
    find(diagnosis);
    for (const auto& blocked : waits_.blocked()) diagnosis.waits.push_back(wait_of(blocked));
    diagnosis.notes = notes();
    return diagnosis;
  }

 private:
  void find(Diagnosis& diagnosis) const {
    if (waits_.mismatch()) return tell_mismatch(*waits_.mismatch(), diagnosis);
    const auto chains = chains_of(waits_);
    for (const auto& [rank, record] : job_.records)
      if (waits_.failed_itself(record)) return tell_failure(record, chains, diagnosis);
    if (const auto links = cycle_of(waits_); !links.empty()) return tell_cycle(links, diagnosis);
    const auto worst = std::min_element(chains.begin(), chains.end(), [](const auto& a, const auto& b) {
      return std::pair(severity(a.back().awaited), -a.front().blocked->seconds) <
             std::pair(severity(b.back().awaited), -b.front().blocked->seconds);
    });
    if (worst != chains.end() && is_stuck(*worst)) return tell_chain(*worst, diagnosis);
    diagnosis.sentence = "nothing is stuck";
    if (!waits_.blocked().empty()) {
      const Blocked& longest = waits_.blocked().front();
      diagnosis.sentence += fmt::format(": the longest wait is that of {} for {}, {:.3f} s so far",
                                        words_.name(longest.rank), words_.describe_call(longest), longest.seconds);
    }
  }

  static int severity(const Awaited& awaited) {
    switch (awaited.cause) {
      case Cause::kStopped:
        return 0;
      case Cause::kFailed:
        return 1;
      case Cause::kNoFile:
        return 2;
      case Cause::kEnded:
        return 3;
      case Cause::kOutside:
        return 4;
      default:
        return 5;
    }
  }

  bool is_stuck(const Chain& chain) const {
    // The failure of the job ended all other operations in progress, except those whose own deadline was over.
    if (chain.back().awaited.cause == Cause::kWithin && job_failed()) {
      const Blocked& last = *chain.back().blocked;
      return last.seconds >= kDeadlineShare * waits_.record(last.rank)->identity.timeout_seconds;
    }
    return job_failed() || chain.back().awaited.cause == Cause::kEnded ||
           chain.front().blocked->seconds >= stuck_after_;
  }

  bool job_failed() const {
    return std::any_of(job_.records.begin(), job_.records.end(), [](const auto& one) { return one.second.failure; });
  }

  void tell_mismatch(const Mismatch& found, Diagnosis& diagnosis) const {
    const Group& group = waits_.group_of(found.rank, *found.mine);
    if (found.what == Mismatch::What::kTensor) {
      diagnosis.finding = Finding::kTensorsDiffer;
      if (is_message(found.mine->kind)) {
        const bool receives = found.mine->kind == Kind::kReceive;
        diagnosis.sentence =
            fmt::format("{} expects {} from {} as {}, which sent {}", words_.name(receives ? found.rank : found.other),
                        describe(*found.mine, group), words_.name(receives ? found.other : found.rank),
                        describe_tensor(receives ? *found.mine : *found.theirs),
                        describe_tensor(receives ? *found.theirs : *found.mine));
        return;
      }
      diagnosis.sentence = fmt::format("{} called {} as {} where {} called it as {}", words_.name(found.rank),
                                       describe(*found.mine, group), describe_as_call(*found.mine),
                                       words_.name(found.other), describe_as_call(*found.theirs));
      return;
    }
    diagnosis.finding = Finding::kCallsDiffer;
    diagnosis.sentence = fmt::format(
        "{} called {} as number {} of group '{}' where {} called {}; all members must make the same calls "
        "in the same order",
        words_.name(found.rank), describe_as_call(*found.mine), found.mine->sequence, group.label,
        words_.name(found.other), describe_as_call(*found.theirs));
  }

  void tell_failure(const RankRecord& record, const std::vector<Chain>& chains, Diagnosis& diagnosis) const {
    const auto behind = std::find_if(chains.begin(), chains.end(), [&](const auto& chain) {
      return chain.back().awaited.rank == record.identity.rank;
    });
    if (behind != chains.end()) tell_chain(*behind, diagnosis);
    diagnosis.finding = Finding::kRankFailed;
    if (behind == chains.end())
      diagnosis.sentence =
          fmt::format("{} failed, but no rank waited for it: {}", words_.name(record.identity.rank), record.error);
  }

  void tell_cycle(const Chain& links, Diagnosis& diagnosis) const {
    diagnosis.finding = Finding::kCycle;
    if (links.size() == 1) {
      diagnosis.sentence = fmt::format("{} waits for itself: for {}", words_.name(links[0].blocked->rank),
                                       words_.describe_link(links[0]));
      return;
    }
    diagnosis.sentence = fmt::format("{} ranks wait for each other in a cycle: ", links.size());
    for (std::size_t i = 0; i < links.size(); ++i)
      if (links.size() <= kMostLinks || i + 1 < kMostLinks || i + 1 == links.size())
        diagnosis.sentence += fmt::format("{}{} for {}", i == 0 ? "" : ", ", words_.name(links[i].blocked->rank),
                                          words_.describe_link(links[i]));
      else if (i + 1 == kMostLinks)
        diagnosis.sentence += fmt::format(", {} more in between", links.size() - kMostLinks);
  }

  void tell_chain(const std::vector<Link>& chain, Diagnosis& diagnosis) const {
    const Link& last = chain.back();
    diagnosis.finding = finding_of(last);
    diagnosis.sentence = fmt::format("{} has waited {:.1f} s for {}", words_.name(chain.front().blocked->rank),
                                     chain.front().blocked->seconds, words_.describe_link(chain.front()));
    for (std::size_t i = 1; i < chain.size(); ++i)
      if (chain.size() <= kMostLinks || i + 1 < kMostLinks || i + 1 == chain.size())
        diagnosis.sentence += ", which waits for " + words_.describe_link(chain[i]);
      else if (i + 1 == kMostLinks)
        diagnosis.sentence += fmt::format(", which waits for a chain of {} other ranks", chain.size() - kMostLinks);
    diagnosis.sentence += ", " + words_.describe_end(last);
    if (diagnosis.finding == Finding::kNoSend)
      diagnosis.sentence += fmt::format(
          "; it sent {} instead, which no rank has requested",
          with_tensor(*sent_instead(last).back(), waits_.group_of(last.blocked->rank, *last.blocked->operation)));
  }

  std::vector<const Operation*> sent_instead(const Link& link) const {
    if (link.blocked->operation->kind != Kind::kReceive) return {};
    return waits_.unasked(link.awaited.rank, link.blocked->rank, *link.blocked->operation);
  }

  Finding finding_of(const Link& link) const {
    switch (link.awaited.cause) {
      case Cause::kStopped:
        return Finding::kStopped;
      case Cause::kFailed:
        return Finding::kRankFailed;
      case Cause::kNoFile:
        return Finding::kNoFile;
      case Cause::kNotWaiting:
      case Cause::kWithin:
        return Finding::kNotFinished;
      default:
        break;
    }
    if (!sent_instead(link).empty()) return Finding::kNoSend;
    if (!link.awaited.in_group) return Finding::kNeverJoined;
    return link.awaited.cause == Cause::kEnded ? Finding::kRankEnded : Finding::kNotReached;
  }

  Wait wait_of(const Blocked& blocked) const {
    Wait wait{blocked.rank, words_.describe_call(blocked), blocked.seconds, {}};
    for (const auto& awaited : blocked.awaited) wait.ranks.push_back(awaited.rank);
    return wait;
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> notes;
    if (const auto missing = static_cast<std::size_t>(job_.ranks) - job_.records.size(); missing > 0) {
      std::string ranks;
      for (int rank = 0, named = 0; rank < job_.ranks && named < 16; ++rank)
        if (!waits_.record(rank)) ranks += fmt::format("{}{}", named++ ? ", " : "", rank);
      notes.push_back(
          fmt::format("{} of {} ranks left no file: {}{}", missing, job_.ranks, ranks, missing > 16 ? ", ..." : ""));
    }
    std::size_t messages = 0;
    for (const auto& [rank, record] : job_.records)
      for (const auto* send : unasked_of(record))
        if (++messages <= kMostNotes)
          notes.push_back(fmt::format("{} sent {}, which {} has not requested", words_.name(rank),
                                      with_tensor(*send, waits_.group_of(rank, *send)), words_.name(send->peer)));
    if (messages > kMostNotes)
      notes.push_back(fmt::format("{} more messages that no rank has requested", messages - kMostNotes));
    if (job_.other_jobs > 0) notes.push_back(fmt::format("{} files of earlier jobs are ignored", job_.other_jobs));
    return notes;
  }

  std::vector<const Operation*> unasked_of(const RankRecord& record) const {
    std::set<int> peers;
    for (const auto& operation : record.operations)
      if (operation.kind == Kind::kSend) peers.insert(operation.peer);
    std::vector<const Operation*> all;
    for (const int peer : peers)
      for (const auto* send : waits_.unasked(record.identity.rank, peer))
        if (job_failed() || static_cast<double>(record.written_ns - send->posted_ns) * 1e-9 >= stuck_after_)
          all.push_back(send);
    return all;
  }

  const JobRecords& job_;
  const double stuck_after_;
  const Waits waits_;
  const CallWords words_{waits_};
};

}  // namespace

const char* name_of(Finding finding) {
  static constexpr const char* kNames[] = {"nothing",      "calls_differ", "tensors_differ", "stopped",
                                           "rank_failed",  "cycle",        "no_file",        "rank_ended",
                                           "never_joined", "no_send",      "not_reached",    "not_finished"};
  return kNames[static_cast<int>(finding)];
}

Diagnosis diagnose(const JobRecords& job, double stuck_after_seconds) {
  return Examiner(job, stuck_after_seconds).examine();
}

std::string sentence_of(const std::string& folder) {
  try {
    const Diagnosis diagnosis = diagnose(read_folder(folder), /*stuck_after_seconds=*/0);
    return diagnosis.finding == Finding::kNothing ? "" : diagnosis.sentence;
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace gantry::recorder

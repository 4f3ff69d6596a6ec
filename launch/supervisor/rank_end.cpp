#include "gantry/launch/supervisor/rank_end.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <signal.h>
#include <sstream>

#include "gantry/core/error.h"

namespace gantry::launcher {
namespace {

using Kind = RankEnd::Kind;

constexpr int kStoppedOnRequest = 75, kSignalled = 128;

bool is_bare_peer_loss(const RankEnd& end) { return end.kind == Kind::kExit && end.number == PeerError::kExitCode; }

const RankEnd* first_failure(const std::vector<RankEnd>& ranks) {
  const auto counts = [](const RankEnd& end) { return end.failed() && !end.notified && end.kind != Kind::kNever; };
  const auto own = std::find_if(ranks.begin(), ranks.end(),
                                [&](const RankEnd& end) { return counts(end) && !is_bare_peer_loss(end); });
  if (own != ranks.end()) return &*own;
  // The other ranks lost a stalled rank, even though it was notified to end like them.
  const auto held =
      std::find_if(ranks.begin(), ranks.end(), [](const RankEnd& end) { return end.kind == Kind::kStopped; });
  const auto any = held != ranks.end() ? held : std::find_if(ranks.begin(), ranks.end(), counts);
  return any == ranks.end() ? nullptr : &*any;
}

Verdict of_rank(const RankEnd& end) {
  std::string line = describe_end(end);
  if (is_bare_peer_loss(end))
    return {end.number, line + ", because another rank failed or did not answer; its own error message names that rank",
            "a rank was lost", false};
  return {end.exit_code(), line, line, false};
}

// Returns a rank that ended with code 0 while other ranks still ran, which were then notified to end.
const RankEnd* first_deserter(const std::vector<RankEnd>& ranks) {
  const auto left =
      std::find_if(ranks.begin(), ranks.end(), [](const RankEnd& end) { return !end.failed() && !end.notified; });
  const bool others = std::any_of(ranks.begin(), ranks.end(), [](const RankEnd& end) { return end.notified; });
  return left == ranks.end() || !others ? nullptr : &*left;
}

Verdict when_asked(const JobEnd& end) {
  const auto stopped = [](const RankEnd& rank) { return rank.kind == Kind::kExit && rank.number == kStoppedOnRequest; };
  const auto done = [](const RankEnd& rank) { return rank.kind == Kind::kExit && rank.number == 0; };
  const auto& ranks = end.ranks;
  if (!end.forced && !ranks.empty() && std::all_of(ranks.begin(), ranks.end(), done)) return {};
  if (!end.forced && std::any_of(ranks.begin(), ranks.end(), stopped)) return {kStoppedOnRequest, "", "", false};
  return {kSignalled + end.asked_by,
          fmt::format("ended by {}{}", signal_name(end.asked_by),
                      end.forced ? " at once" : "; the program does not handle the request to save and stop (SIGUSR1)"),
          "", false};
}

Verdict mpirun_killed(const JobEnd& end) {
  return {PeerError::kExitCode, fmt::format("{} was killed by {}", end.starter, signal_name(-end.mpirun_code)),
          end.starter, true};
}

Verdict never_began(const JobEnd& end) {
  return {PeerError::kExitCode,
          fmt::format("{} began; {} ended with exit code {}; see its own messages",
                      end.ranks.size() == 1 ? "the rank never" : "not all ranks", end.starter, end.mpirun_code),
          "not all ranks began", /*mpirun_knows=*/true};
}

}  // namespace

int RankEnd::exit_code() const { return kind == Kind::kExit ? number : PeerError::kExitCode; }

std::string encode_end(const RankEnd& end) {
  return fmt::format("{} {}{}", end.kind == Kind::kExit ? "exit" : "signal", end.number,
                     end.notified ? " notified" : "");
}

std::optional<RankEnd> decode_end(const std::string& bytes) {
  std::istringstream words(bytes);
  std::string kind, notified;
  RankEnd end;
  if (!(words >> kind >> end.number) || (kind != "exit" && kind != "signal")) return std::nullopt;
  end.kind = kind == "exit" ? Kind::kExit : Kind::kSignal;
  end.notified = words >> notified && notified == "notified";
  return end;
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name ? std::string("SIG").append(name) : fmt::format("signal {}", number);
}

std::string describe_end(const RankEnd& end) {
  const std::string who = fmt::format("rank {}{}", end.rank, end.host.empty() ? "" : " on " + end.host);
  switch (end.kind) {
    case Kind::kExit:
      return fmt::format("{} ended with exit code {}", who, end.number);
    case Kind::kSignal:
      return fmt::format("{} was killed by {}", who, signal_name(end.number));
    case Kind::kStopped:
      return fmt::format("{} was suspended by {} and did not continue", who, signal_name(end.number));
    case Kind::kSilent:
      return fmt::format("{} sends no heartbeats, because its supervisor (gantry launch-rank) was suspended", who);
    case Kind::kLost:
      return fmt::format("{} is unreachable", who);
    case Kind::kLeft:
      return fmt::format("{} has left the job before its work was done", who);
    case Kind::kNever:
      break;
  }
  return fmt::format("{} never began", who);
}

Verdict judge(const JobEnd& end) {
  const auto* failure = first_failure(end.ranks);
  if (end.asked_by != 0) {
    // A consequence of the request itself: the signal that requests the stop ends a program without a handler
    // for it.
    const bool by_request = !failure || end.forced || (failure->kind == Kind::kSignal && failure->number == SIGUSR1);
    if (by_request) return when_asked(end);
  }
  if (end.mpirun_first) return mpirun_killed(end);
  if (failure) return of_rank(*failure);
  const auto& ranks = end.ranks;
  if (std::any_of(ranks.begin(), ranks.end(), [](const RankEnd& rank) { return rank.kind == Kind::kNever; }))
    return never_began(end);
  if (const auto* deserter = first_deserter(ranks)) {
    const std::string line =
        fmt::format("rank {}{} ended with exit code {} while others were still running", deserter->rank,
                    deserter->host.empty() ? "" : " on " + deserter->host, deserter->number);
    return {PeerError::kExitCode, line, line, false};
  }
  if (end.aborted_by >= 0 && end.mpirun_code > 0) {
    const std::string line = fmt::format("rank {} ended the job with exit code {}", end.aborted_by, end.mpirun_code);
    return {end.mpirun_code, line, line, false};
  }
  const auto stopped = std::find_if(ranks.begin(), ranks.end(), [](const RankEnd& rank) { return rank.number != 0; });
  if (stopped != ranks.end() && stopped->number == kStoppedOnRequest) return {kStoppedOnRequest, "", "", false};
  if (end.mpirun_code < 0) return mpirun_killed(end);
  if (end.mpirun_code != 0)
    return {end.mpirun_code, fmt::format("{} ended with exit code {}", end.starter, end.mpirun_code), end.starter,
            true};
  return {};
}

}  // namespace gantry::launcher

#include "gantry/launch/job_ending.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "gantry/comm/control/timers.h"
#include "gantry/comm/processes/process_end.h"
#include "gantry/core/error.h"
#include "gantry/core/host/last_act.h"
#include "gantry/core/host/stop_request.h"
#include "gantry/diagnosis/flight_recorder.h"

namespace gantry {
namespace {

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

}  // namespace

// Ending the job blocks until the process ends, so it runs on a separate thread.
ControlEvents JobEnding::events() {
  return {.on_lost =
              [this](const JobFailure& failure) {
                failures()->hear(failure);
                std::thread([this, failure] { end_lost(failure); }).detach();
              },
          .on_abort =
              [this](const JobFailure& failure) {
                failures()->hear(failure);
                std::thread([this, failure] { end_reported(failure); }).detach();
              },
          .on_left =
              [this](const std::set<int>& ranks) {
                failures()->note_ended({ranks.begin(), ranks.end()});
              },
          .on_stop = hear_stop,
          .on_record = recorder::answer_record_request};
}

std::shared_ptr<KnownFailures> JobEnding::failures() const {
  const std::lock_guard lock(mutex_);
  return failures_;
}

void JobEnding::begin_generation() {
  const std::lock_guard lock(mutex_);
  failures_ = std::make_shared<KnownFailures>();
}

void JobEnding::set_lost_ranks(std::function<std::vector<int>()> lost_ranks) {
  const std::lock_guard lock(mutex_);
  lost_ranks_ = std::move(lost_ranks);
}

// The number of ranks below this one, without rank 0, whose connections have ended; 0 if that is unknown.
int JobEnding::lost_before_this() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> lost;
  try {
    if (lost_ranks_) lost = lost_ranks_();
  } catch (...) {  // called on another thread than the rank's
    return 0;
  }
  return static_cast<int>(
      std::count_if(lost.begin(), lost.end(), [this](int rank) { return rank > 0 && rank < rank_; }));
}

void JobEnding::end_job(int exit_code, const std::string& line) {
  using Clock = std::chrono::steady_clock;
  const std::shared_ptr<KnownFailures> failures = this->failures();
  const bool mine = !failures->failed_elsewhere();
  if (mine) {
    const bool is_of_rank = !failures->failed() && size_ > 1 && exit_code != ConfigError::kExitCode;
    const std::string cause = is_of_rank ? describe_rank_(rank_) + ": " + line : line;
    failure_notes().record(exit_code, line);
    if (failures->first().set(exit_code, cause)) tell_failure(exit_code, cause);
    // The control plane decides which failure counts: several ranks may fail at the same time, and only one
    // of them prints.
    const auto deadline = Clock::now() + std::chrono::duration<double>(size_ == 1 ? 0 : control::kVerdictSeconds);
    while (!failures->known() && Clock::now() < deadline) sleep_for(1e-3);
    const auto known = failures->known();
    if (!known || known->rank == rank_) print_and_end(exit_code, cause);
  }
  const JobFailure known = *failures->known();
  if (!mine) failure_notes().record(known.exit_code, known.cause);
  end_with_others(control::kOthersEndSeconds, known);
}

// Ends this process after a failure that another rank has reported and prints.
void JobEnding::end_reported(const JobFailure& failure) {
  failure_notes().record(failure.exit_code, failure.cause);
  end_with_others(control::kStuckRankSeconds, failure);
}

// Ends the job because a rank is lost. This rank prints the cause.
void JobEnding::end_lost(const JobFailure& failure) {
  failure_notes().record(failure.exit_code, failure.cause);
  // Only rank 0 detects the loss of other ranks. Every other rank detects the loss of rank 0. The lowest of
  // them prints it; the others wait, and end if a lower rank has ended meanwhile.
  if (failure.rank == 0 && rank_ > 1) {
    sleep_for(control::kLastWordsSeconds);
    const int before = lost_before_this();
    sleep_for(control::kSecondVoiceSeconds + control::kNextVoiceSeconds * std::min(rank_, 10));
    if (lost_before_this() > before) end_process(PeerError::kExitCode);
  }
  print_once(failure.cause);
  sleep_for(control::kLastWordsSeconds);
  print_and_end(failure.exit_code, failure.cause);
}

// With MPI, the rank that reported the failure ends this process too; if it does not, this process ends after
// `seconds`. With sockets this process ends itself, with the exit code of a lost peer.
void JobEnding::end_with_others(double seconds, const JobFailure& failure) {
  if (aborts_all_ || failure.rank == rank_) {
    // A killed rank cannot run its last act, and `gantry launch` kills the others before `seconds` have
    // passed.
    if (failure.exit_code == PeerError::kExitCode) run_last_act(failure.cause);
    sleep_for(seconds);
    print_and_end(failure.exit_code, failure.cause);
  }
  run_last_act(failure.cause);
  sleep_for(control::kLastWordsSeconds);
  end_process(PeerError::kExitCode);
}

void JobEnding::print_once(const std::string& line) {
  if (printed_.exchange(true)) return;
  std::fprintf(stderr, "error: %s\n", line.c_str());
  failure_notes().print_hint();
}

void JobEnding::print_and_end(int exit_code, const std::string& line) {
  print_once(line);
  run_last_act(line);
  if (!aborts_all_) sleep_for(control::kLastWordsSeconds);
  end_process(exit_code);
}

}  // namespace gantry

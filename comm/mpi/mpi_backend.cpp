#include "gantry/comm/mpi/mpi_backend.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>

#include "gantry/comm/control/timers.h"
#include "gantry/comm/mpi/mpi_channel.h"
#include "gantry/comm/mpi/mpi_environment.h"
#include "gantry/core/error.h"
#include "gantry/core/last_act.h"

namespace gantry {
namespace {

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Engines that could not be closed: MPI may still write to their memory.
void keep_for_good(std::shared_ptr<MpiEngine> engine) {
  static auto* kept = new std::vector<std::shared_ptr<MpiEngine>>;
  kept->push_back(std::move(engine));
}

}  // namespace

std::unique_ptr<MpiBackend> make_mpi_backend(const WaitLimits& waits, std::function<std::string(int)> describe_rank,
                                             MpiLimits limits) {
  return std::make_unique<MpiBackend>(MpiEngine::start(waits, std::move(describe_rank), limits));
}

MpiBackend::~MpiBackend() {
  if (engine_->closed()) return;
  try {
    if (!engine_->failures().failed() && std::uncaught_exceptions() == 0) engine_->close();
  } catch (const std::exception&) {
    // Whoever wanted to know has called close() already.
  }
  if (!engine_->closed()) keep_for_good(engine_);
}

int MpiBackend::rank() const { return engine_->rank(); }
int MpiBackend::size() const { return engine_->size(); }

std::unique_ptr<ProcessGroup> MpiBackend::make_group(const std::string& label, const std::vector<int>& ranks) {
  engine_->failures().throw_if_failed();
  return make_mpi_group(std::make_shared<MpiChannel>(engine_, label, ranks));
}

void MpiBackend::abort(const std::string& reason) { engine_->fail(PeerError::kExitCode, reason); }

bool MpiBackend::has_ended(int rank) const { return engine_->failures().find_ended({rank}) >= 0; }

void MpiBackend::close() { engine_->close(); }

void MpiBackend::end_job(int exit_code, const std::string& line) {
  using Clock = std::chrono::steady_clock;
  const MpiFailures& failures = engine_->failures();
  const bool mine = !failures.failed_elsewhere();
  if (mine) {
    const bool is_of_rank = !failures.failed() && size() > 1 && exit_code != ConfigError::kExitCode;
    const std::string cause = is_of_rank ? engine_->describe_rank(rank()) + ": " + line : line;
    failure_notes().record(exit_code, line);
    engine_->fail(exit_code, cause);
    // The control plane says whose failure stands: several ranks may fail at once, and one of them is to print.
    const auto deadline = Clock::now() + std::chrono::duration<double>(size() == 1 ? 0 : control::kVerdictSeconds);
    while (!failures.known() && Clock::now() < deadline) sleep_for(1e-3);
    const auto known = failures.known();
    if (!known || known->rank == rank()) print_and_abort(exit_code, cause);
  }
  const JobFailure known = *failures.known();
  if (!mine) failure_notes().record(known.exit_code, known.cause);
  sleep_for(control::kOthersEndSeconds);
  print_and_abort(known.exit_code, known.cause);
}

void MpiBackend::hear(const JobFailure& failure) { engine_->failures().hear(failure); }

void MpiBackend::end_reported(const JobFailure& failure) {
  failure_notes().record(failure.exit_code, failure.cause);
  sleep_for(control::kStuckRankSeconds);
  print_and_abort(failure.exit_code, failure.cause);
}

void MpiBackend::end_lost(const JobFailure& failure) {
  failure_notes().record(failure.exit_code, failure.cause);
  // Rank 0 alone finds others lost. That rank 0 is lost every other rank finds; the lowest one is to say it.
  if (failure.rank == 0 && rank() > 1)
    sleep_for(control::kSecondVoiceSeconds + control::kNextVoiceSeconds * std::min(rank(), 10));
  print_once(failure.cause);
  sleep_for(control::kLastWordsSeconds);
  print_and_abort(failure.exit_code, failure.cause);
}

void MpiBackend::note_ended(const std::vector<int>& ranks) { engine_->failures().note_ended(ranks); }

void MpiBackend::print_once(const std::string& line) {
  if (printed_.exchange(true)) return;
  std::fprintf(stderr, "error: %s\n", line.c_str());
  failure_notes().print_hint();
}

void MpiBackend::print_and_abort(int exit_code, const std::string& line) {
  print_once(line);
  run_last_act(line);
  mpi_abort(exit_code);
}

}  // namespace gantry

#include "gantry/trainer/stop_signals.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <unistd.h>

#include "gantry/core/host/stop_request.h"

namespace gantry {
namespace {

constexpr std::array<int, 3> kSignals = {SIGTERM, SIGINT, SIGUSR1};

// mpirun ends the ranks of a job by SIGTERM after one of them has failed. No person asked for a stop then.
std::atomic<bool> is_ended_by_mpirun{false};

void on_signal(int signal) {
  if (!request_stop()) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
    return;
  }
  if (signal == SIGTERM && is_ended_by_mpirun) return;
  const int error = errno;
  constexpr std::string_view kNote = "\nstopping after this microbatch; send the signal again to end at once\n";
  (void)!::write(STDERR_FILENO, kNote.data(), kNote.size());
  errno = error;
}

}  // namespace

StopSignals::StopSignals() {
  forget_stop();
  is_ended_by_mpirun = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &former_[i]);
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &former_[i], nullptr);
}

}  // namespace gantry

#include "gantry/cli/engine/stop_signals.h"

#include <atomic>
#include <cerrno>
#include <string_view>
#include <unistd.h>

namespace gantry::cli {
namespace {

constexpr std::array<int, 3> kSignals = {SIGTERM, SIGINT, SIGUSR1};

std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int signal) {
  if (requested.exchange(true)) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
    return;
  }
  const int error = errno;
  constexpr std::string_view kNote = "\nstopping after this step, with a checkpoint; once more to end at once\n";
  (void)!::write(STDERR_FILENO, kNote.data(), kNote.size());
  errno = error;
}

}  // namespace

StopSignals::StopSignals() {
  requested = false;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &former_[i]);
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &former_[i], nullptr);
}

bool stop_requested() { return requested; }

}  // namespace gantry::cli

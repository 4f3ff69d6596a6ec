#include "gantry/launch/supervisor/launch_signals.h"

#include <algorithm>
#include <csignal>
#include <poll.h>
#include <sys/signalfd.h>

#include "gantry/core/base/steady_seconds.h"

namespace gantry::launcher {

LaunchSignals::LaunchSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&set, number);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  descriptor_ = Descriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

int LaunchSignals::take() {
  signalfd_siginfo info{};
  return ::read(descriptor_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

int LaunchSignals::wait(double seconds) {
  const double end = steady_seconds() + seconds;
  for (double left = seconds; left > 0; left = end - steady_seconds()) {
    pollfd ready{descriptor_.get(), POLLIN, 0};
    ::poll(&ready, 1, static_cast<int>(1000 * std::min(left, 3600.0)) + 1);
    if (const int number = take(); number != 0 && number != SIGUSR2 && number != SIGCHLD) return number;
  }
  return 0;
}

}  // namespace gantry::launcher

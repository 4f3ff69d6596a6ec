#include "gantry/comm/control/event_thread.h"

#include <csignal>
#include <pthread.h>

namespace gantry::control {
namespace {

constexpr std::chrono::seconds kGrace{2};

}  // namespace

void EventThread::start() {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // a thread inherits its maker's mask
  thread_ = std::thread([this] {
    context_.run();
    const std::lock_guard lock(mutex_);
    finished_ = true;
    changed_.notify_all();
  });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void EventThread::stop() {
  if (!thread_.joinable()) return;
  {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kGrace, [this] { return finished_; })) context_.stop();
  }
  thread_.join();
}

}  // namespace gantry::control

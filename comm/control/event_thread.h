// A thread that runs an io_context, blocked in epoll while nothing happens.
#pragma once

#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <exception>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <unistd.h>

#include "gantry/comm/control/asio.h"
#include "gantry/comm/control/timers.h"
#include "gantry/core/error.h"

namespace gantry::control {

// The thread blocks all signals, so that they go to the program's own threads. An exception of a handler or a
// coroutine is printed, and ends the process with the exit code of InternalError.
class EventThread {
 public:
  EventThread() : context_(1) {}
  ~EventThread() { stop(); }
  EventThread(const EventThread&) = delete;
  EventThread& operator=(const EventThread&) = delete;

  asio::io_context& context() { return context_; }
  // Runs until no work is left, so spawn something before the call.
  void start() {
    sigset_t all, before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // a thread inherits the mask of its creator
    thread_ = std::thread([this] {
      run_context();
      const std::lock_guard lock(mutex_);
      finished_ = true;
      changed_.notify_all();
    });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  // Waits until no work is left, at most kCloseSeconds, and then ends the thread. The owner closes all
  // connections before the call. May be called twice.
  void stop() {
    if (!thread_.joinable()) return;
    {
      std::unique_lock lock(mutex_);
      const auto grace = std::chrono::duration<double>(kCloseSeconds);
      if (!changed_.wait_for(lock, grace, [this] { return finished_; })) context_.stop();
    }
    thread_.join();
  }

 private:
  void run_context() noexcept {
    try {
      context_.run();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "error: control plane: %s\n", error.what());
      std::fflush(nullptr);
      ::_exit(InternalError::kExitCode);
    }
  }

  asio::io_context context_;
  std::mutex mutex_;  // guards finished_
  std::condition_variable changed_;
  bool finished_ = false;
  std::thread thread_;
};

}  // namespace gantry::control

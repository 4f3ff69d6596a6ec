#include "device_stream.h"

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include "device_memory.h"
#include "gantry/core/base/steady_seconds.h"

namespace gantry::testing {
namespace {

std::atomic<bool> late{false};
std::atomic<int> latest{0};

// All streams. They are never destroyed, because their threads may outlive the main thread.
struct Streams {
  std::mutex mutex;
  std::array<std::deque<PretendStream>, kPretendDevices> of_device;
};

Streams& streams() {
  static auto* all = new Streams;
  return *all;
}

}  // namespace

void set_kernel_timing(KernelTiming timing, int latest_microseconds) {
  late = timing == KernelTiming::kLate;
  latest = latest_microseconds;
}

bool kernels_are_late() { return late; }

PretendStream& pretend_stream(int device, int number) {
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  auto& ours = all.of_device.at(static_cast<std::size_t>(device));
  while (ours.size() <= static_cast<std::size_t>(number)) ours.emplace_back(device, static_cast<int>(ours.size()));
  return ours[static_cast<std::size_t>(number)];
}

void PretendStream::submit(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  ++submitted_;
  if (!std::exchange(has_thread_, true)) std::thread([this] { work(); }).detach();
  changed_.notify_all();
}

bool PretendStream::idle() {
  const std::lock_guard lock(mutex_);
  return done_ == submitted_;
}

void PretendStream::wait() {
  std::unique_lock lock(mutex_);
  const std::uint64_t wanted = submitted_;
  ++waiting_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return done_ >= wanted; });
  --waiting_;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void PretendStream::work() {
  at::init_num_threads();  // OpenMP's number of threads is set per thread
  std::minstd_rand random(static_cast<unsigned>(device_ * 64 + number_ + 1));
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !tasks_.empty(); });
    if (const int most = latest; late && most > 0) {
      const std::chrono::microseconds delay(static_cast<int>(random() % static_cast<unsigned>(most)));
      changed_.wait_for(lock, delay, [this] { return waiting_ > 0; });
    }
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      task();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure && !failure_) failure_ = failure;
    ++done_;
    changed_.notify_all();
  }
}

StreamPoint::StreamPoint(PretendStream& stream, Clock clock)
    : stream_(stream), recording_(stream.recording()), clock_(std::move(clock)) {
  if (stream.idle()) {
    state_->seconds = steady_seconds();
    return;
  }
  stream.submit([state = state_] {
    const std::lock_guard lock(state->mutex);
    state->seconds = steady_seconds();
    state->changed.notify_all();
  });
}

bool StreamPoint::reached() { return seconds() >= 0; }

double StreamPoint::seconds() {
  const std::lock_guard lock(state_->mutex);
  return state_->seconds;
}

void StreamPoint::wait() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->seconds >= 0; });
}

}  // namespace gantry::testing

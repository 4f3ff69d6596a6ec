#include "gantry/comm/nccl/communicator_ends.h"

#include <chrono>
#include <exception>
#include <iterator>
#include <utility>

namespace gantry {
namespace {

constexpr std::chrono::milliseconds kAsk{20};

}  // namespace

CommunicatorEnds::~CommunicatorEnds() {
  wait([] { return true; });
  for (End& end : ends_) end.thread.detach();
}

void CommunicatorEnds::start(std::string communicator, std::function<void()> end) {
  auto progress = std::make_shared<Progress>();
  std::thread thread([progress, end = std::move(end)]() mutable {
    try {
      end();
      end = nullptr;  // frees its objects before the end is reported
    } catch (const std::exception&) {
      // The device is broken; the job has reported its error.
    }
    const std::lock_guard lock(progress->mutex);
    progress->ended = true;
    progress->changed.notify_all();
  });
  const std::lock_guard lock(mutex_);
  drop_ended();
  ends_.push_back({std::move(communicator), std::move(progress), std::move(thread)});
}

// A job may make and close groups many times.
void CommunicatorEnds::drop_ended() {
  for (auto end = ends_.begin(); end != ends_.end();) {
    std::unique_lock look(end->progress->mutex);
    const bool ended = end->progress->ended;
    look.unlock();
    if (ended) end->thread.join();
    end = ended ? ends_.erase(end) : std::next(end);
  }
}

std::vector<std::string> CommunicatorEnds::wait(const std::function<bool()>& give_up) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> left;
  for (auto end = ends_.begin(); end != ends_.end();) {
    std::unique_lock look(end->progress->mutex);
    while (!end->progress->ended && !give_up()) end->progress->changed.wait_for(look, kAsk);
    const bool ended = end->progress->ended;
    look.unlock();
    if (!ended) {
      left.push_back((end++)->communicator);
      continue;
    }
    end->thread.join();
    end = ends_.erase(end);
  }
  return left;
}

}  // namespace gantry

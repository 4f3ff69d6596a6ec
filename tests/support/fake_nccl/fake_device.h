// Streams and events of host memory: a stream is a queue that a thread of its own works off, an event a point in one.
// The default stream of a thread is the thread itself, since LibTorch's CPU kernels run on it: to wait for an event
// there is to wait.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

#include <torch/torch.h>

namespace gantry::testing {

class FakeStream {
 public:
  void add(std::function<void()> task);

 private:
  void work();
  std::mutex mutex_;  // guards the rest
  std::deque<std::function<void()>> tasks_;
  bool working_ = false;
};

// Gives LibTorch's device type such streams and events, for the rest of the process.
void install_fake_device(torch::DeviceType type);
int live_fake_events();
// How many streams are given out in turn; 0: each is a new one.
void set_fake_pool(int streams);

}  // namespace gantry::testing

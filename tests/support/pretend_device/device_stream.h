// The streams of the pretended devices.
//
// In the checked way, the default, kernels run at once on the thread that gives them, after what the stream still
// holds; in the late way each waits in its stream's queue, begins up to some microseconds late, and the host goes on.
// What a library (the fake NCCL) puts on a stream runs on the stream's own thread in both.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "race_checker.h"

namespace gantry::testing {

struct GraphRecording;

class PretendStream {
 public:
  PretendStream(int device, int number) : device_(device), number_(number) {}

  int device() const { return device_; }
  int number() const { return number_; }  // among its device's; 0 is the default one

  // Queues for the stream's own thread. An exception of the task is thrown by the next wait().
  void submit(std::function<void()> task);
  bool idle();
  void wait();  // until all that was queued before has run

  // Where what the stream is given is noted in place of being run; null: it is run. Not owned.
  GraphRecording* recording() const { return recording_; }
  void record_into(GraphRecording* recording) { recording_ = recording; }

 private:
  void work();

  const int device_, number_;
  std::atomic<GraphRecording*> recording_{nullptr};
  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::uint64_t submitted_ = 0, done_ = 0;
  int waiting_ = 0;  // threads, for which tasks hurry
  bool has_thread_ = false;
  std::exception_ptr failure_;
};

// How kernels run from now on; to be changed only while no device has work.
enum class KernelTiming { kAtOnce, kLate };
void set_kernel_timing(KernelTiming timing, int latest_microseconds = 0);
bool kernels_are_late();

PretendStream& pretend_stream(int device, int number);
PretendStream& current_stream(int device);  // this thread's

// A point in a stream's work, as an event records it.
class StreamPoint {
 public:
  StreamPoint(PretendStream& stream, Clock clock);

  const GraphRecording* recording() const { return recording_; }  // that it is a part of; null: none

  bool reached();
  void wait();  // the host
  const Clock& clock() const { return clock_; }
  PretendStream& stream() const { return stream_; }
  int device() const { return stream_.device(); }
  double seconds();  // when the stream came by, once it has

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    double seconds = -1;
  };
  PretendStream& stream_;
  const GraphRecording* recording_;
  const Clock clock_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// How many streams a device's pool has; tests of its end ask for few.
void set_stream_pool(int streams);
int live_events();

}  // namespace gantry::testing

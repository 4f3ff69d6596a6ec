// The streams of the pretended devices.
//
// With KernelTiming::kAtOnce, the default, a kernel runs on the submitting thread, after the pending tasks of
// the stream. With kLate it runs on the stream's own thread, with a random delay of some microseconds, and
// the host does not wait. Operations of libraries (the fake NCCL) run on the stream's own thread in both
// cases.
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
  int number() const { return number_; }  // index on the device; 0: the default stream

  // Queues a task for the stream's own thread. The next wait() rethrows an exception of the task.
  void submit(std::function<void()> task);
  bool idle();
  void wait();  // until all tasks that were queued before the call have run

  // The graph into which the stream's kernels are captured instead of run; null: no capture. Not owned.
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
  int waiting_ = 0;  // threads in wait(): tasks then start without a delay
  bool has_thread_ = false;
  std::exception_ptr failure_;
};

// Sets the timing of kernels (see above). Change it only while no device has work.
enum class KernelTiming { kAtOnce, kLate };
void set_kernel_timing(KernelTiming timing, int latest_microseconds = 0);
bool kernels_are_late();

PretendStream& pretend_stream(int device, int number);
PretendStream& current_stream(int device);  // differs between threads

// A position in the work of a stream, as recorded by an event.
class StreamPoint {
 public:
  StreamPoint(PretendStream& stream, Clock clock);

  const GraphRecording* recording() const { return recording_; }  // the capture it is in; null: none

  bool reached();
  void wait();  // blocks the host
  const Clock& clock() const { return clock_; }
  PretendStream& stream() const { return stream_; }
  int device() const { return stream_.device(); }
  double seconds();  // time at which the stream reached the point; -1 before

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

// Sets the number of streams per pool. Tests of an exhausted pool set a small one.
void set_stream_pool(int streams);
int live_events();

}  // namespace gantry::testing

// Records what LibTorch's own profiler, Kineto, sees of one rank: the operators of its thread and the kernels that they
// start on a GPU. A process has one such recording at a time, which its rank threads share. All uses of Kineto are in
// the .cpp file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "gantry/profiling/profiler.h"

namespace gantry {

class KinetoRecording {
 public:
  // Suppresses Kineto's messages on stderr at begin and end, unless KINETO_LOG_LEVEL is set. Call it from main, before
  // other threads exist.
  static void keep_quiet();

  // Prepares Kineto (on a GPU, its counters), so that the start of a recording is not slower than the rest.
  static void warm_up();

  // The calling thread takes part: starts the process's recording, or joins it. `meet` is a barrier of all threads that
  // take part. It is called here, so that all have joined, and by take(), because a recording must not end while a
  // thread is within an operator. Without it, the thread is alone. Throws UsageError if another profiler records the
  // process, or if another thread takes part and one of the two is alone.
  explicit KinetoRecording(std::function<void()> meet);
  // Without take(): discards the events, and waits for no other thread.
  ~KinetoRecording();
  KinetoRecording(const KinetoRecording&) = delete;
  KinetoRecording& operator=(const KinetoRecording&) = delete;

  // Called once, on the thread that constructed this object. Returns the events of the thread since then, ordered by
  // start.
  Profile take();

 private:
  struct Session;
  struct Joining {};
  KinetoRecording(Joining, std::function<void()> meet);
  static std::shared_ptr<Session> begin(bool alone);
  static std::shared_ptr<Session> join(bool alone);

  std::function<void()> meet_;

  std::shared_ptr<Session> session_;
  std::uint64_t thread_;  // Kineto's number of the thread
  double joined_ = 0;     // steady clock; 0 for the thread that started the session
};

}  // namespace gantry

// What LibTorch's own profiler, Kineto, saw of one rank: the operators of its thread and the kernels that they started
// on a GPU. A process has one such recording at a time, which its rank threads share; all that is Kineto's is in this
// file's .cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "gantry/profiling/profiler.h"

namespace gantry {

class KinetoRecording {
 public:
  // Keeps Kineto from saying on stderr when it begins and ends, unless KINETO_LOG_LEVEL is set. From main, before there
  // are other threads.
  static void keep_quiet();

  // Gets ready (on a GPU, its counters), so that a recording's first moments count as its later ones do.
  static void warm_up();

  // The calling thread takes part: begins the process's recording, or joins it. `meet` returns when every thread that
  // takes part has called it; it is called here, so that all have joined, and by take(), since a recording must not end
  // while one is within an operator. Without it the thread is alone. UsageError where another profiler records the
  // process, or another thread and one of the two is alone.
  explicit KinetoRecording(std::function<void()> meet);
  // Without take(): gives up what was seen, and waits for nobody.
  ~KinetoRecording();
  KinetoRecording(const KinetoRecording&) = delete;
  KinetoRecording& operator=(const KinetoRecording&) = delete;

  // On the thread that constructed this, once: what it did since, in order of its start.
  Profile take();

 private:
  struct Session;
  struct Joining {};
  KinetoRecording(Joining, std::function<void()> meet);
  static std::shared_ptr<Session> begin(bool alone);
  static std::shared_ptr<Session> join(bool alone);

  std::function<void()> meet_;

  std::shared_ptr<Session> session_;
  std::uint64_t thread_;  // Kineto's number of it
  double joined_ = 0;     // steady clock; 0 for who began the session
};

}  // namespace gantry

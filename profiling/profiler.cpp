#include "gantry/profiling/profiler.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/profiling/kineto_recording.h"

namespace gantry {
namespace {

thread_local bool watched = false;

}  // namespace

Profiler::Profiler(ProfileSchedule schedule, Ready ready, std::function<void()> meet)
    : schedule_(schedule), ready_(std::move(ready)), meet_(std::move(meet)) {
  if (schedule.active < 1 || schedule.wait < 0 || schedule.warmup < 0 || schedule.repeat < 0)
    throw UsageError({"profile",
                      fmt::format("the schedule has wait {}, warmup {}, active {} and repeat {}", schedule.wait,
                                  schedule.warmup, schedule.active, schedule.repeat),
                      "at least one active step, and no negative numbers", ""});
  if (watched) throw UsageError({"profile", "this thread already has a profiler", "one profiler at a time", ""});
  enter(phase_of(0));
  watched = true;
}

Profiler::~Profiler() { watched = false; }

Profiler::Phase Profiler::phase_of(int step) const {
  const int length = schedule_.wait + schedule_.warmup + schedule_.active;
  if (schedule_.repeat > 0 && step >= schedule_.repeat * length) return Phase::kOff;
  const int within = step % length;
  if (within < schedule_.wait) return Phase::kOff;
  return within < schedule_.wait + schedule_.warmup ? Phase::kWarmup : Phase::kActive;
}

void Profiler::enter(Phase phase) {
  if (phase == Phase::kWarmup && phase_ != Phase::kWarmup) KinetoRecording::warm_up();
  if (phase == Phase::kActive && !recording_) recording_ = std::make_unique<KinetoRecording>(meet_);
  phase_ = phase;
}

int Profiler::active_steps_done() const {
  return step_ % (schedule_.wait + schedule_.warmup + schedule_.active) - schedule_.wait - schedule_.warmup;
}

void Profiler::end_cycle(int steps) {
  Profile profile = recording_->take();
  recording_.reset();
  profile.cycle = step_ / (schedule_.wait + schedule_.warmup + schedule_.active);
  profile.steps = steps;
  ready_(profile);
}

void Profiler::step() {
  const bool last = phase_ == Phase::kActive && active_steps_done() == schedule_.active - 1;
  if (last) end_cycle(schedule_.active);
  ++step_;
  enter(phase_of(step_));
}

void Profiler::finish() {
  if (phase_ == Phase::kActive && active_steps_done() > 0) end_cycle(active_steps_done());
  recording_.reset();
  phase_ = Phase::kOff;
}

}  // namespace gantry

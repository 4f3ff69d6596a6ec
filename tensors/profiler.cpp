#include "gantry/tensors/profiler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ATen/record_function.h>

#include "gantry/core/error.h"
#include "gantry/core/steady_seconds.h"
#include "gantry/tensors/memory_meter.h"

namespace gantry {
namespace {

std::string shapes_of(c10::ArrayRef<const c10::IValue> inputs) {
  std::string shapes;
  for (const auto& input : inputs) {
    if (!input.isTensor() || !input.toTensor().defined()) continue;
    shapes += fmt::format("{}[{}]", shapes.empty() ? "" : ", ", fmt::join(input.toTensor().sizes(), ", "));
  }
  return shapes;
}

std::int64_t bytes_of(c10::ArrayRef<const c10::IValue> inputs) {
  std::int64_t bytes = 0;
  for (const auto& input : inputs)
    if (input.isTensor() && input.toTensor().defined() && input.toTensor().has_storage())
      bytes += static_cast<std::int64_t>(input.toTensor().nbytes());
  return bytes;
}

}  // namespace

// The callbacks are plain functions: they find the recording of their thread here.
struct Profiler::Recording {
  std::vector<ProfiledOperator> operators;
  std::vector<std::size_t> open;  // places of those that have not ended, outermost first
  at::CallbackHandle handle = 0;
  static thread_local Recording* of_this_thread;

  struct Entered final : at::ObserverContext {
    explicit Entered(std::size_t place) : place(place) {}
    std::size_t place;
  };
  static std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& call) {
    Recording* mine = of_this_thread;
    if (!mine) return nullptr;
    // Groups around groups wait for each other's works: one wait.
    if (std::string_view(call.name()) == "gantry::wait" && !mine->open.empty() &&
        mine->operators[mine->open.back()].name == "gantry::wait")
      return nullptr;
    auto entered = std::make_unique<Entered>(mine->operators.size());
    // Its memory is the difference of what is held, once it has ended.
    const int depth = static_cast<int>(mine->open.size());
    mine->open.push_back(entered->place);
    mine->operators.push_back({call.name(), shapes_of(call.inputs()), depth, steady_seconds(), 0,
                               bytes_of(call.inputs()), -MemoryMeter::bytes_of_this_thread()});
    return entered;
  }
  static void leave(const at::RecordFunction&, at::ObserverContext* context) {
    Recording* mine = of_this_thread;
    if (!mine || !context) return;
    mine->open.pop_back();
    auto& ended = mine->operators[static_cast<Entered*>(context)->place];
    ended.end = steady_seconds();
    ended.memory += MemoryMeter::bytes_of_this_thread();
  }
};
thread_local Profiler::Recording* Profiler::Recording::of_this_thread = nullptr;

Profiler::Profiler(ProfileSchedule schedule, Ready ready) : schedule_(schedule), ready_(std::move(ready)) {
  if (schedule.active < 1 || schedule.wait < 0 || schedule.warmup < 0 || schedule.repeat < 0)
    throw UsageError({"profile",
                      fmt::format("wait {}, warmup {}, active {}, repeat {}", schedule.wait, schedule.warmup,
                                  schedule.active, schedule.repeat),
                      "at least one active step, and none negative", ""});
  if (Recording::of_this_thread) throw UsageError({"profile", "a second profiler on one thread", "one at a time", ""});
  enter(phase_of(0));
}

Profiler::~Profiler() { enter(Phase::kOff); }

Profiler::Phase Profiler::phase_of(int step) const {
  const int length = schedule_.wait + schedule_.warmup + schedule_.active;
  if (schedule_.repeat > 0 && step >= schedule_.repeat * length) return Phase::kOff;
  const int within = step % length;
  if (within < schedule_.wait) return Phase::kOff;
  return within < schedule_.wait + schedule_.warmup ? Phase::kWarmup : Phase::kActive;
}

void Profiler::enter(Phase phase) {
  if (phase == Phase::kOff && recording_) {
    at::removeCallback(recording_->handle);
    Recording::of_this_thread = nullptr;
    recording_.reset();
  } else if (phase != Phase::kOff && !recording_) {
    recording_ = std::make_unique<Recording>();
    Recording::of_this_thread = recording_.get();
    recording_->handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&Recording::enter, &Recording::leave)
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE}));
  }
  phase_ = phase;
}

void Profiler::step() {
  const int length = schedule_.wait + schedule_.warmup + schedule_.active;
  const int cycle = step_ / length;
  const bool ends_cycle = phase_ == Phase::kActive && step_ % length == length - 1;
  if (ends_cycle) ready_({cycle, std::move(recording_->operators)});
  const Phase next = phase_of(++step_);
  if (recording_ && (ends_cycle || phase_ == Phase::kWarmup)) recording_->operators.clear();
  enter(next);
}

}  // namespace gantry

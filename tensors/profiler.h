// Which operators one rank's thread ran, when and for how long, over chosen steps: LibTorch's operators, autograd's
// nodes, and Gantry's collectives and waits. Works alike for ranks that are threads and ranks that are processes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gantry {

// As PyTorch's: `wait` steps are passed over, `warmup` steps are watched but not kept, `active` steps are kept;
// `repeat` such cycles, 0 for as many as there are steps.
struct ProfileSchedule {
  int wait = 0;
  int warmup = 0;
  int active = 1;
  int repeat = 1;
};

struct ProfiledOperator {
  std::string name;           // "aten::addmm", "gantry::all_reduce"
  std::string shapes;         // of its tensors: "[2, 3], [3, 4]"
  int depth = 0;              // how many operators it ran within
  double start = 0, end = 0;  // seconds on the steady clock
  std::int64_t bytes = 0;     // of its tensors
  std::int64_t memory = 0;    // that it left allocated, what ran within it included; negative where it freed more.
                              // 0 without a MemoryMeter on the thread
};

// The active steps of one cycle, in order of their start.
struct Profile {
  int cycle = 0;
  std::vector<ProfiledOperator> operators;
};

// Watches the thread that made it, for its lifetime. One at a time on a thread.
class Profiler {
 public:
  using Ready = std::function<void(const Profile&)>;
  // UsageError for a schedule without active steps or with negative ones. `ready` is called by step() at the end of
  // each cycle.
  Profiler(ProfileSchedule schedule, Ready ready);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // Ends a step of the training loop.
  void step();

 private:
  enum class Phase { kOff, kWarmup, kActive };
  Phase phase_of(int step) const;
  void enter(Phase phase);

  struct Recording;
  ProfileSchedule schedule_;
  Ready ready_;
  int step_ = 0;
  Phase phase_ = Phase::kOff;
  std::unique_ptr<Recording> recording_;
};

// All calls of one operator, over every shape.
struct OperatorCost {
  std::string name;
  std::int64_t calls = 0;
  double own = 0, total = 0;  // seconds, without and with what ran within it
  std::int64_t memory = 0;    // bytes that it left allocated itself
  std::string shapes;         // of the longest call
};

// The `rows` costliest by their own time, costliest first.
std::vector<OperatorCost> costliest_operators(const Profile& profile, int rows);

// As a table: name, own time and its share, total time, calls, memory, shapes. The share is of all operators, those
// that are not shown too.
std::string operator_table(const Profile& profile, int rows);

// Events of a Chrome trace, comma-separated, in microseconds from `origin` (seconds on the steady clock): an operator
// each with shapes, bytes, memory and what it ran within, on thread `thread` of process `id`.
std::string chrome_events(const Profile& profile, int id, int thread, double origin);

// A whole Chrome trace, which Perfetto reads too: `process` names this rank, `id` orders the ranks of a merged trace.
std::string chrome_trace(const Profile& profile, const std::string& process, int id);

}  // namespace gantry

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

// Chrome's trace format, which Perfetto reads too: `process` names this rank, `id` orders the ranks of a merged trace.
std::string chrome_trace(const Profile& profile, const std::string& process, int id);

// The costliest operators by their own time, without what ran within them: name, calls, own and total milliseconds,
// shapes of the longest call.
std::string operator_table(const Profile& profile, int rows);

}  // namespace gantry

// Which operators one rank ran, when and for how long, over chosen steps: LibTorch's operators, autograd's nodes, the
// kernels that they started on a GPU, and Gantry's collectives and waits, as LibTorch's own profiler (Kineto) records
// them. Works alike for ranks that are threads and ranks that are processes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gantry {

inline constexpr double kMicroseconds = 1e6;  // in a second: the unit of traces

class KinetoRecording;

// As PyTorch's: `wait` steps are passed over, in `warmup` steps the profiler gets ready, `active` steps are kept;
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

// What ran on a GPU.
struct ProfiledKernel {
  std::string name;
  int device = 0;
  std::int64_t stream = 0;
  double start = 0, end = 0;    // seconds on the steady clock
  std::size_t operator_at = 0;  // the place of the operator that started it
};

// The active steps of one cycle, in order of their start.
struct Profile {
  int cycle = 0;
  std::vector<ProfiledOperator> operators;
  std::vector<ProfiledKernel> kernels;
  int steps = 0;  // fewer than asked for where finish() ended the cycle
};

// Watches the thread that made it, for its lifetime. One at a time on a thread, and one for all ranks of a process:
// LibTorch has one profiler per process.
class Profiler {
 public:
  using Ready = std::function<void(const Profile&)>;
  // `ready` is called by step() at the end of each cycle, and by finish(). `meet` returns when every rank's thread of
  // this process has called it, as a barrier of the world does; it is called where active steps begin and where they
  // end, here, in step() or in finish(). Without it the thread is the only one that is profiled. UsageError for a
  // schedule without active steps or with negative ones, and where another profiler is at work.
  Profiler(ProfileSchedule schedule, Ready ready, std::function<void()> meet = {});
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // Ends a step of the training loop.
  void step();

  // There are no more steps: `ready` gets what a cycle under way has of its active ones, if any of them is over.
  void finish();

 private:
  enum class Phase { kOff, kWarmup, kActive };
  Phase phase_of(int step) const;
  int active_steps_done() const;  // of the cycle that the next step belongs to
  void enter(Phase phase);
  void end_cycle(int steps);

  ProfileSchedule schedule_;
  Ready ready_;
  std::function<void()> meet_;
  int step_ = 0;
  Phase phase_ = Phase::kOff;
  std::unique_ptr<KinetoRecording> recording_;
};

// All calls of one operator, over every shape.
struct OperatorCost {
  std::string name;
  std::int64_t calls = 0;
  double own = 0, total = 0;  // seconds, without and with what ran within it
  double device = 0;          // seconds of the kernels that it started itself
  std::int64_t memory = 0;    // bytes that it left allocated itself
  std::string shapes;         // of the longest call
};

// The `rows` costliest, costliest first: by their kernels' time where there are kernels, else by their own time.
std::vector<OperatorCost> costliest_operators(const Profile& profile, int rows);

// As a table: name, own time and its share, total time, calls, memory, shapes, and where there are kernels their time.
// The share is of all operators, those that are not shown too.
std::string operator_table(const Profile& profile, int rows);

// Events of a Chrome trace, comma-separated, in microseconds from `origin` (seconds on the steady clock): an operator
// each with shapes, bytes, memory and what it ran within, on thread `thread` of process `id`; the kernels of each GPU
// and stream on a thread behind it.
std::string chrome_events(const Profile& profile, int id, int thread, double origin);

// A whole Chrome trace, which Perfetto reads too, of events as chrome_events gives them; empty texts are passed over.
// The events stay text: as one document, those of many ranks would take ten times their memory.
std::string chrome_trace(const std::vector<std::string>& events);

// The same of one rank: `process` names it, `id` orders the ranks of a merged trace.
std::string chrome_trace(const Profile& profile, const std::string& process, int id);

}  // namespace gantry

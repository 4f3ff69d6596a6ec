// Profiles the operators of a rank over selected steps, with LibTorch's profiler (Kineto): LibTorch's operators,
// autograd nodes, the kernels that they start on a GPU, and Gantry's collectives and waits. Works the same for ranks
// that are threads and ranks that are processes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gantry {

inline constexpr double kMicroseconds = 1e6;  // per second: the unit of traces

class KinetoRecording;

// As in PyTorch: `wait` steps are skipped, `warmup` steps prepare the profiler, `active` steps are kept. There are
// `repeat` such cycles; 0: until the last step.
struct ProfileSchedule {
  int wait = 0;
  int warmup = 0;
  int active = 1;
  int repeat = 1;
};

struct ProfiledOperator {
  std::string name;           // "aten::addmm", "gantry::all_reduce"
  std::string shapes;         // shapes of its tensors: "[2, 3], [3, 4]"
  int depth = 0;              // number of enclosing operators
  double start = 0, end = 0;  // seconds on the steady clock
  std::int64_t bytes = 0;     // bytes of its tensors
  // Bytes that it left allocated, including nested operators; negative if it freed more. 0 without a MemoryMeter on the
  // thread.
  std::int64_t memory = 0;
};

// A kernel on a GPU.
struct ProfiledKernel {
  std::string name;
  int device = 0;
  std::int64_t stream = 0;
  double start = 0, end = 0;    // seconds on the steady clock
  std::size_t operator_at = 0;  // index of the operator that started it
};

// The active steps of one cycle, ordered by start time.
struct Profile {
  int cycle = 0;
  std::vector<ProfiledOperator> operators;
  std::vector<ProfiledKernel> kernels;
  int steps = 0;  // fewer than requested if finish() ended the cycle
};

// Profiles the thread that created it, during its lifetime. At most one per thread, and one for all ranks of a process,
// because LibTorch has one profiler per process.
class Profiler {
 public:
  using Ready = std::function<void(const Profile&)>;
  // `ready` is called by step() at the end of each cycle, and by finish(). `meet` must be a barrier over the threads of
  // all ranks of this process. It is called before and after the active steps: in the constructor, step() or finish().
  // Without it, only this thread is profiled. Throws UsageError for a schedule without active steps or with negative
  // numbers, and if another profiler is active.
  Profiler(ProfileSchedule schedule, Ready ready, std::function<void()> meet = {});
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // Ends a step of the training loop.
  void step();

  // Ends profiling. If a cycle has completed active steps, `ready` receives them.
  void finish();

 private:
  enum class Phase { kOff, kWarmup, kActive };
  Phase phase_of(int step) const;
  int active_steps_done() const;  // active steps of the next step's cycle
  void enter(Phase phase);
  void end_cycle(int steps);

  ProfileSchedule schedule_;
  Ready ready_;
  std::function<void()> meet_;
  int step_ = 0;
  Phase phase_ = Phase::kOff;
  std::unique_ptr<KinetoRecording> recording_;
};

// All calls of one operator, over all shapes.
struct OperatorCost {
  std::string name;
  std::int64_t calls = 0;
  double own = 0, total = 0;  // seconds without and with nested operators
  double device = 0;          // seconds of the kernels that it started itself
  std::int64_t memory = 0;    // bytes that it left allocated itself
  std::string shapes;         // shapes of the longest call
};

// Returns the `rows` most expensive operators, in descending order: by the time of their kernels or, without kernels,
// by their own time.
std::vector<OperatorCost> costliest_operators(const Profile& profile, int rows);

// Returns a table with name, own time and its share, total time, calls, memory, shapes and, if there are kernels,
// kernel time. The share is relative to all operators, including those that are not listed.
std::string operator_table(const Profile& profile, int rows);

// Returns events of a Chrome trace, comma-separated, in microseconds from `origin` (seconds on the steady clock). Each
// operator has its shapes, bytes, memory and enclosing operator, on thread `thread` of process `id`. The kernels of
// each GPU and stream have a thread of their own.
std::string chrome_events(const Profile& profile, int id, int thread, double origin);

// Returns a complete Chrome trace, which Perfetto can read too, from texts of chrome_events(); empty texts are skipped.
// The events stay text, because a document object for many ranks would take ten times the memory.
std::string chrome_trace(const std::vector<std::string>& events);

// The same for one rank. `process`: its name; `id`: its position in a merged trace.
std::string chrome_trace(const Profile& profile, const std::string& process, int id);

}  // namespace gantry

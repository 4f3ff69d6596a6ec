#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <mutex>
#include <optional>
#include <thread>
#include <unistd.h>

#include "gantry/comm/local/local_backend.h"
#include "gantry/core/error.h"
#include "gantry/core/host/last_act.h"
#include "gantry/core/host/usable_cores.h"
#include "gantry/diagnosis/flight_recorder.h"
#include "gantry/launch/backends.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// A rank that has not ended this long after another rank failed is stuck in user code.
constexpr std::chrono::seconds kEndGrace{10};
// Waits for a rank that has ended have their own deadlines, with a more precise error, so they get the time
// to fail first.
constexpr std::chrono::seconds kAfterDeadlines{1};

// MKL detects the processor at its first call. If several threads make this call at the same time, one of
// them may get other kernels, whose results (of a cosine, for example) differ in the last bit. One run in
// several hundred had different results. So the thread that starts the ranks makes the first call.
void prepare_math() {
  static std::once_flag once;
  std::call_once(once, [] {
    const torch::NoGradGuard no_grad;
    for (const auto type : {torch::kFloat32, torch::kFloat64}) {
      const torch::Tensor square = torch::full({32, 32}, 0.5, type);
      for (const torch::Tensor& one : {square.cos(), square.sin(), square.exp(), square.tanh(), square.log(),
                                       square.sqrt(), square.erf(), torch::pow(square, square), square.matmul(square)})
        one.sum().item<double>();
    }
  });
}

constexpr std::size_t kStackBytes = 64 << 10;  // some kernels save kilobytes of registers on it

thread_local std::array<char, 128> rank_name{};

void write_text(const char* text) { (void)!::write(STDERR_FILENO, text, std::strlen(text)); }

// A signal handler must not allocate or lock.
void on_crash(int signal) {
  write_text("error: ");
  write_text(rank_name[0] != '\0' ? rank_name.data() : "a thread that is not a rank");
  write_text(": ended by SIG");
  const char* name = ::sigabbrev_np(signal);
  write_text(name ? name : "?");
  write_text("\n");
  ::raise(signal);  // its handler is the default one again
}

// exit() destroys the thread-local objects of the calling thread before the global ones, which the other
// ranks still use. A thread-local destructor is therefore the last point at which the process can end safely.
struct WithinWork {
  bool is_within = false;
  ~WithinWork() {
    if (is_within) leave();
  }
  [[noreturn]] static void leave();
};
thread_local WithinWork within_work;

void WithinWork::leave() {
  const std::string cause = format_error({rank_name.data(), "the program ended during the rank's work",
                                          "the body of launch to return", "return from it instead of calling exit()"});
  recorder::record_failure(PeerError::kExitCode, cause);
  write_text(("error: " + cause + "\n").c_str());
  std::fflush(nullptr);
  ::_exit(PeerError::kExitCode);
}

// While it exists, SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT first write "error: <rank>: ended by SIGSEGV"
// to stderr and then have their default effect. Signals that already have a handler keep it. A call of
// exit() on a rank's thread would end all ranks with the exit code of a completed job. Instead it prints an
// error and ends the process with the exit code of PeerError. Only one may exist at a time in a process.
class CrashNote {
 public:
  CrashNote();
  ~CrashNote();
  CrashNote(const CrashNote&) = delete;
  CrashNote& operator=(const CrashNote&) = delete;

  // Marks the rank's work on the calling thread, until it is destroyed; crashes afterwards are still reported
  // with the rank's name. Meanwhile signal handlers have a separate stack on this thread, unless it has one
  // already, because an overflowed stack leaves no space for them.
  class RankThread {
   public:
    explicit RankThread(const std::string& rank);
    ~RankThread();
    RankThread(const RankThread&) = delete;
    RankThread& operator=(const RankThread&) = delete;

   private:
    std::unique_ptr<char[]> stack_;
  };

 private:
  static constexpr std::array<int, 5> kSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  std::array<bool, kSignals.size()> caught_{};
};

CrashNote::CrashNote() {
  struct sigaction note {};
  note.sa_handler = on_crash;
  note.sa_flags = SA_RESETHAND | SA_NODEFER | SA_ONSTACK;
  sigemptyset(&note.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction former {};
    ::sigaction(kSignals[i], nullptr, &former);
    caught_[i] = (former.sa_flags & SA_SIGINFO) == 0 && former.sa_handler == SIG_DFL;
    if (caught_[i]) ::sigaction(kSignals[i], &note, nullptr);
  }
}

CrashNote::~CrashNote() {
  for (std::size_t i = 0; i < kSignals.size(); ++i)
    if (caught_[i]) ::signal(kSignals[i], SIG_DFL);
}

CrashNote::RankThread::RankThread(const std::string& rank) {
  rank_name.fill('\0');
  std::strncpy(rank_name.data(), rank.c_str(), rank_name.size() - 1);
  within_work.is_within = true;
  stack_t former{};
  if (::sigaltstack(nullptr, &former) != 0 || (former.ss_flags & SS_DISABLE) == 0) return;
  stack_ = std::make_unique<char[]>(kStackBytes);
  stack_t own{};
  own.ss_sp = stack_.get();
  own.ss_size = kStackBytes;
  ::sigaltstack(&own, nullptr);
}

CrashNote::RankThread::~RankThread() {
  within_work.is_within = false;
  if (!stack_) return;
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  ::sigaltstack(&none, nullptr);
}

// The ranks that have ended. Shared by rank threads and the main thread, guarded by its mutex.
class Finish {
 public:
  explicit Finish(int ranks) : left_(static_cast<std::size_t>(ranks)), ended_(left_, false) {}

  void rank_ended(int rank) {
    {
      const std::lock_guard lock(mutex_);
      ended_[static_cast<std::size_t>(rank)] = true;
      if (--left_ + 1 == ended_.size()) first_ended_ = std::chrono::steady_clock::now();
    }
    changed_.notify_all();
  }

  // Ranks end together, as over MPI. If a rank has not ended within the timeout after the first one, the job
  // fails. Returns false if the job has failed and not all ranks end within the grace time.
  bool wait(LocalJob& job) {
    const auto timeout = std::chrono::duration<double>(job.timeout_seconds()) + kAfterDeadlines;
    std::unique_lock lock(mutex_);
    const auto all_ended = [this] { return left_ == 0; };
    while (!changed_.wait_for(lock, std::chrono::milliseconds(50), all_ended)) {
      if (!job.failed() && first_ended_ && std::chrono::steady_clock::now() - *first_ended_ > timeout)
        job.fail(PeerError::kExitCode, late_line(job));
      if (job.failed()) return changed_.wait_for(lock, kEndGrace, all_ended);
    }
    return true;
  }

 private:
  std::string late_line(const LocalJob& job) const {
    const auto late = std::find(ended_.begin(), ended_.end(), false) - ended_.begin();
    return format_error({job.describe_rank(static_cast<int>(late)),
                         fmt::format("the rank has not ended {} s after the first rank ended", job.timeout_seconds()),
                         "all ranks to end at about the same time", "check what the rank is doing"});
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t left_;
  std::vector<bool> ended_;
  std::optional<std::chrono::steady_clock::time_point> first_ended_;
};

void run_rank(LocalJob& job, int rank, const Config& config, const Mesh& mesh,
              const std::function<void(World&)>& body) {
  const CrashNote::RankThread thread(mesh.describe_rank(rank));
  set_rank_threads(config.comm, usable_cores() / mesh.size());
  try {
    LocalBackend backend(job, rank);
    World world(backend, config, mesh);
    body(world);
    job.note_ended(rank);
  } catch (...) {
    const Failure failure = describe_exception(std::current_exception());
    // A ConfigError names no rank, because the configuration is the same on all ranks.
    const bool is_of_rank = mesh.size() > 1 && failure.exit_code != ConfigError::kExitCode;
    job.fail(failure.exit_code, is_of_rank ? mesh.describe_rank(rank) + ": " + failure.line : failure.line);
  }
}

void report_local_failure(const Failure& failure) {
  recorder::record_failure(failure.exit_code, failure.line);
  std::fprintf(stderr, "error: %s\n", failure.line.c_str());
  recorder::print_recorder_hint();
  run_last_act(failure.line);
}

}  // namespace

std::optional<Failure> run_local(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body) {
  prepare_math();
  LocalJob job(mesh.size(), {config.comm.timeout_seconds, config.comm.lost_after_seconds},
               [&mesh](int rank) { return mesh.describe_rank(rank); });
  const CrashNote crash_note;
  Finish finish(mesh.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < mesh.size(); ++rank)
    threads.emplace_back([&, rank] {
      run_rank(job, rank, config, mesh, body);
      finish.rank_ended(rank);
    });
  if (!finish.wait(job)) {
    report_local_failure({job.failure().exit_code(), job.failure().cause()});
    std::fprintf(stderr, "error: a rank is stuck outside communication; the process ends without it\n");
    std::fflush(nullptr);
    ::_exit(job.failure().exit_code());
  }
  for (auto& thread : threads) thread.join();
  if (!job.failed()) return std::nullopt;
  return Failure{job.failure().exit_code(), job.failure().cause()};
}

int launch_local(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body) {
  const auto failure = run_local(config, mesh, body);
  if (!failure) return 0;
  report_local_failure(*failure);
  return failure->exit_code;
}

}  // namespace gantry

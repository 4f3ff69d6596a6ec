#include "gantry/diagnosis/flight_recorder.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <future>
#include <poll.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/core/host/this_host.h"
#include "gantry/core/io/durable_file.h"

namespace gantry::recorder {
namespace {

constexpr int kCheckMilliseconds = 100;
constexpr std::int64_t kSuspended = 1'000'000'000;  // nanoseconds between two checks
constexpr std::chrono::seconds kMostWriting{5};
constexpr char kSignalled = 's', kRequested = 'r', kJobChanged = 'j';

std::atomic<int> signal_pipe{-1};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int) {
  const int error = errno;
  (void)!::write(signal_pipe.load(std::memory_order_relaxed), &kSignalled, 1);
  errno = error;
}

// An identifier that is the same on all ranks of the job, if the launcher provides one.
std::string job_name(bool several_processes) {
  if (!several_processes) return fmt::format("{}-{}-{}", host_name(), ::getpid(), monotonic_ns());
  std::string name = "job";
  for (const char* variable : {"PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID"})
    if (const char* value = std::getenv(variable)) name += std::string("-") + value;
  return name;
}

// Writes a file completely or not at all, under a temporary name of this process. The file is not synced, because the
// disk may be busy for a long time with the data of the job.
void write_file(const std::string& path, const std::string& text) {
  write_text_durably(path, text, system_files(),
                     {.suffix = fmt::format(".{}-{}.new", host_name(), ::getpid()), .is_synced = false});
}

// Diagnoses the files in the folder with the settings of the job, for at most kMostWriting: a file system that hangs
// must not prevent the job from ending.
std::string sentence_in_time(const JobSettings& settings) {
  if (!settings.sentence_of) return "";
  auto said = std::make_shared<std::promise<std::string>>();
  auto ready = said->get_future();
  try {
    std::thread([settings, said] { said->set_value(settings.sentence_of(settings.folder)); }).detach();
  } catch (const std::system_error&) {
    return "";
  }
  return ready.wait_for(kMostWriting) == std::future_status::ready ? ready.get() : "";
}

// Shared between threads. `mutex_` guards everything, but is not held while files are written, which is guarded by
// `writing_`. Never destroyed, because its thread lives until the process ends.
class Service {
 public:
  static Service& instance() {
    static auto* service = new Service;
    return *service;
  }

  bool begin(const JobSettings& settings) {
    const std::lock_guard lock(mutex_);
    if (active_) return false;
    ranks_.clear();
    failed_ = of_waiting_ = hinted_ = false;
    failure_of_writing_.clear();
    if (settings.entries == 0) return false;
    active_ = true;
    settings_ = settings;
    checked_ns_ = 0;
    shown_folder_ = settings.folder;
    settings_.folder = std::filesystem::absolute(settings.folder).string();
    job_ = job_name(settings.several_processes);
    start_thread();
    (void)!::write(signal_pipe, &kJobChanged, 1);
    return true;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    active_ = false;
  }

  void set_requests(std::function<void()> ask) {
    const std::lock_guard lock(mutex_);
    ask_ = std::move(ask);
  }

  std::shared_ptr<RankRecorder> add(Identity who) {
    const std::lock_guard lock(mutex_);
    if (!active_) return nullptr;
    who.job = job_;
    who.ranks = settings_.ranks;
    who.host = host_name();
    who.process = ::getpid();
    ranks_.push_back(std::make_shared<RankRecorder>(std::move(who), settings_.entries));
    return ranks_.back();
  }

  // The reason of a failure stays: later files are about the same failure.
  bool write(bool failure, const std::string& reason, bool ask_others) {
    const std::lock_guard writing(writing_);
    std::vector<std::shared_ptr<RankRecorder>> ranks;
    std::string folder, said;
    bool failed = false;
    {
      const std::lock_guard lock(mutex_);
      if (ranks_.empty()) return false;
      note_suspension();
      if (failure && !failed_) failed_ = true, reason_ = reason;
      ranks = ranks_;
      folder = settings_.folder;
      failed = failed_;
      said = failed_ ? reason_ : reason;
      if (ask_others && ask_) ask_();
    }
    try {
      std::filesystem::create_directories(folder);
      for (const auto& rank : ranks) {
        RankRecord record = rank->snapshot();
        record.failure = failed;
        record.reason = said;
        write_file(folder + "/" + file_name(record.identity.rank), to_text(record));
      }
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      failure_of_writing_ = error.what();
      return false;
    }
    const std::lock_guard lock(mutex_);
    failure_of_writing_.clear();
    return true;
  }

  void record_failure(const std::string& error, bool of_waiting) {
    {
      const std::lock_guard lock(mutex_);
      if (settings_.ranks < 2) return;
      of_waiting_ = of_waiting;
    }
    // On a thread, because a file system that hangs must not prevent the job from ending.
    auto done = std::make_shared<std::promise<void>>();
    auto written = done->get_future();
    try {
      std::thread([this, error, done] {
        write(/*failure=*/true, error, /*ask_others=*/true);
        done->set_value();
      }).detach();
    } catch (const std::system_error&) {
      return;  // no memory for a thread, nor for files
    }
    if (written.wait_for(kMostWriting) == std::future_status::ready) return;
    const std::lock_guard lock(mutex_);
    failure_of_writing_ = fmt::format("{} does not respond", settings_.folder);
  }

  void print_hint() {
    JobSettings settings;
    std::string shown, failure;
    {
      const std::lock_guard lock(mutex_);
      if (!failed_ || !of_waiting_ || hinted_) return;
      hinted_ = true;
      settings = settings_, shown = shown_folder_, failure = failure_of_writing_;
    }
    if (!failure.empty()) {
      std::fprintf(stderr, "flight recorder: its files cannot be written: %s\n", failure.c_str());
      return;
    }
    const std::string said = sentence_in_time(settings);
    std::fprintf(stderr, "flight recorder: `gantry doctor %s` shows who waited for whom%s%s\n", shown.c_str(),
                 said.empty() ? "" : ": ", said.c_str());
  }

 private:
  void start_thread() {
    if (signal_pipe.load() >= 0) return;
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
    signal_pipe.store(ends[1]);
    struct sigaction former {};
    if (::sigaction(SIGUSR2, nullptr, &former) == 0 && former.sa_handler == SIG_DFL) {
      struct sigaction action {};
      action.sa_handler = on_signal;
      action.sa_flags = SA_RESTART;
      sigemptyset(&action.sa_mask);
      ::sigaction(SIGUSR2, &action, nullptr);
    }
    // Signals are delivered to the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([this, end = ends[0]] { serve(end); }).detach();
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void serve(int pipe) {
    while (true) {
      int wait = -1;
      {
        const std::lock_guard lock(mutex_);
        if (settings_.several_processes) wait = kCheckMilliseconds;
      }
      pollfd ready{pipe, POLLIN, 0};
      ::poll(&ready, 1, wait);
      check();
      char bytes[64];
      bool signalled = false, requested = false;
      for (ssize_t n = 0; (n = ::read(pipe, bytes, sizeof(bytes))) > 0;) {
        signalled = signalled || std::find(bytes, bytes + n, kSignalled) != bytes + n;
        requested = requested || std::find(bytes, bytes + n, kRequested) != bytes + n;
      }
      if (signalled)
        write(false, "SIGUSR2", /*ask_others=*/true);
      else if (requested)
        write(false, "a request of another rank", /*ask_others=*/false);
      check();
    }
  }

  // The thread checks every tenth of a second: if a check is late, the process was suspended. In a job of one process
  // it sleeps without checks, so that suspensions are not detected.
  void check() {
    const std::lock_guard lock(mutex_);
    note_suspension();
    checked_ns_ = settings_.several_processes ? monotonic_ns() : 0;
  }
  void note_suspension() {  // under mutex_
    const std::int64_t now = monotonic_ns();
    if (checked_ns_ == 0 || now - checked_ns_ < kSuspended) return;
    for (const auto& rank : ranks_) rank->was_suspended(checked_ns_, now);
  }

  std::mutex writing_, mutex_;
  bool active_ = false;
  JobSettings settings_;
  std::string shown_folder_;  // as configured
  std::string job_;
  std::function<void()> ask_;  // the other processes for their records
  std::int64_t checked_ns_ = 0;
  std::vector<std::shared_ptr<RankRecorder>> ranks_;
  bool failed_ = false, of_waiting_ = false, hinted_ = false;
  std::string reason_, failure_of_writing_;
};

}  // namespace

RecordedJob::RecordedJob(const JobSettings& settings) : mine_(Service::instance().begin(settings)) {}
RecordedJob::~RecordedJob() {
  if (mine_) Service::instance().end();
}

void set_record_requests(std::function<void()> ask) { Service::instance().set_requests(std::move(ask)); }

void answer_record_request() { (void)!::write(signal_pipe, &kRequested, 1); }

std::shared_ptr<RankRecorder> record_rank(Identity who) { return Service::instance().add(std::move(who)); }

bool write_flight_records(const std::string& reason) { return Service::instance().write(false, reason, true); }

void record_failure(int exit_code, const std::string& error) {
  for (const int own_fault : {UsageError::kExitCode, ConfigError::kExitCode, InputError::kExitCode,
                              CheckpointError::kExitCode, StopRequested::kExitCode})
    if (exit_code == own_fault) return;
  Service::instance().record_failure(error, exit_code == PeerError::kExitCode);
}

void print_recorder_hint() { Service::instance().print_hint(); }

}  // namespace gantry::recorder

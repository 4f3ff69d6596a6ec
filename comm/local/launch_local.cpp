#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <thread>
#include <unistd.h>

#include "gantry/comm/backends.h"
#include "gantry/comm/local/crash_note.h"
#include "gantry/comm/local/local_backend.h"
#include "gantry/comm/recorder/flight_recorder.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

// A rank that does not come back this long after another one failed is stuck in user code.
constexpr std::chrono::seconds kGrace{10};

// Counts the ranks that have ended. Shared by rank threads and the main thread, guarded by its mutex.
class Finish {
 public:
  void rank_ended() {
    {
      const std::lock_guard lock(mutex_);
      ++ended_;
    }
    changed_.notify_all();
  }
  // False if, once `failed` is true, not all ranks end within the grace time.
  bool wait_for(int ranks, const LocalJob& job) {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(50), [&] { return ended_ == ranks; }))
      if (job.failed()) return changed_.wait_for(lock, kGrace, [&] { return ended_ == ranks; });
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int ended_ = 0;
};

void run_rank(LocalJob& job, int rank, const Config& config, const Mesh& mesh,
              const std::function<void(World&)>& body) {
  CrashNote::name_thread(mesh.describe_rank(rank));
  set_rank_threads(config.comm, mesh.size());
  try {
    LocalBackend backend(job, rank);
    World world(backend, config, mesh);
    body(world);
  } catch (...) {
    const Failure failure = describe_exception(std::current_exception());
    job.fail(failure.exit_code, mesh.size() == 1 ? failure.line : mesh.describe_rank(rank) + ": " + failure.line);
  }
}

}  // namespace

int launch_local(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body) {
  LocalJob job(mesh.size(), config.comm.timeout_seconds, [&mesh](int rank) { return mesh.describe_rank(rank); });
  const CrashNote crash_note;
  Finish finish;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < mesh.size(); ++rank)
    threads.emplace_back([&, rank] {
      run_rank(job, rank, config, mesh, body);
      finish.rank_ended();
    });
  const bool all_ended = finish.wait_for(mesh.size(), job);
  if (job.failed()) {
    recorder::record_failure(job.exit_code(), job.cause());
    std::fprintf(stderr, "error: %s\n", job.cause().c_str());
    recorder::print_recorder_hint();
  }
  if (!all_ended) {
    std::fprintf(stderr, "error: a rank is stuck outside communication; the process ends without it\n");
    std::fflush(nullptr);
    ::_exit(job.exit_code());
  }
  for (auto& thread : threads) thread.join();
  return job.exit_code();
}

}  // namespace gantry

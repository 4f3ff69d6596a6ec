#include "gantry/launch/launch.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include <c10/util/Logging.h>

#include "gantry/comm/observed_backend.h"
#include "gantry/core/error.h"
#include "gantry/diagnosis/diagnosis.h"
#include "gantry/diagnosis/flight_recorder.h"
#include "gantry/launch/backends.h"
#include "gantry/launch/foreign_launcher.h"
#include "gantry/launch/generations.h"
#include "gantry/launch/job_start.h"
#include "gantry/launch/process_job.h"
#include "gantry/launch/quiet_launch.h"
#include "gantry/launch/torchrun.h"
#include "gantry/profiling/kineto_recording.h"

namespace gantry {
namespace {

thread_local World* inside_rank = nullptr;

// An exception that is neither a Gantry error nor a lack of memory comes from the body, or from code that it
// called.
void run_users_code(const std::function<void(World&)>& body, World& world) try { body(world); } catch (const Error&) {
  throw;
} catch (...) {
  const Failure failure = describe_exception(std::current_exception());
  if (failure.exit_code != InternalError::kExitCode) throw;
  throw UserError(failure.line);
}

std::function<void(World&)> guarded(const std::function<void(World&)>& body) {
  return [&body](World& world) { run_rank(world, body); };
}

// LibTorch throws if an allocation or a check fails, unless this flag is set. Debian's libsentencepiece has
// its own, larger FLAGS_minloglevel, which replaces LibTorch's flag of the same name at load time and
// overwrites this flag. The process was aborted instead.
void let_failed_checks_throw() { FLAGS_caffe2_use_fatal_for_enforce = false; }

recorder::JobSettings recorder_settings(const Config& config, int ranks, bool processes) {
  return {.folder = config.output.empty() ? "gantry-recorder" : config.output + "/recorder",
          .ranks = ranks,
          .entries = config.comm.recorder,
          .several_processes = processes && ranks > 1,
          .sentence_of = recorder::sentence_of};
}

void refuse_within_rank(const char* call) {
  if (inside_rank)
    throw UsageError({call, "this call was made within a rank of another launch", "", "call it once, from main()"});
}

// The decisions before ranks begin.
struct Preparation {
  std::string backend;
  Mesh mesh;
};

Preparation prepare(const Config& config, int ranks) {
  const auto& parallel = config.parallel;
  Preparation preparation{choose_backend(config.comm.backend),
                          Mesh::hybrid(ranks, parallel.pipeline, parallel.data, parallel.tensor, parallel.order,
                                       parallel.context, parallel.expert)};
  if (config.elastic.is_on()) elastic_policy(config, preparation.mesh);  // throws if the mesh is not suitable
  return preparation;
}

// Runs the ranks in the processes of `job`, or as threads of this process if it is null.
int run_prepared(const Config& config, const Preparation& preparation, StartedJob* job,
                 const std::function<void(World&)>& body) {
  std::function<void(World&)> run = guarded(body);
  if (job && config.elastic.is_on())  // its ranks get other numbers in each generation
    return job->run(config, preparation.mesh, [&](World& world) {
      const recorder::RecordedJob recorded(recorder_settings(config, world.size(), /*processes=*/true));
      run(world);
    });
  const recorder::RecordedJob recorded(recorder_settings(config, preparation.mesh.size(), job != nullptr));
  if (preparation.backend == "nccl")
    run = [on_device = std::move(run)](World& host) { run_on_nccl(host, on_device); };
  else if (preparation.backend == "ipc")
    run = [on_device = std::move(run)](World& host) { run_on_ipc(host, on_device); };
  return job ? job->run(config, preparation.mesh, run) : launch_local(config, preparation.mesh, run);
}

// The ranks agree whether all may begin, because an error on one host is unknown to the others.
int run_processes(const Config& config, StartedJob& job, int ranks, const std::function<void(World&)>& body) {
  std::optional<Preparation> preparation;
  std::optional<Failure> failure;
  try {
    preparation = prepare(config, ranks);
  } catch (...) {
    failure = describe_exception(std::current_exception());
  }
  if (job.joins()) {
    ::unsetenv(JobStart::kJoinsVariable);  // programs that this process starts must not inherit it
    if (failure) std::rethrow_exception(std::make_exception_ptr(Error(failure->exit_code, failure->line)));
    return run_prepared(config, *preparation, &job, body);
  }
  if (const auto code = agree_to_start(job, failure)) {
    job.leave();
    return *code;
  }
  return run_prepared(config, *preparation, &job, body);
}

// `gantry launch --backend tcp` may have started more processes than the configuration has ranks.
int ranks_wanted(const Config& config) { return std::max(config.ranks(), launched_ranks()); }

int run_mpi_job(const Config& config, const std::function<void(World&)>& body) {
  return run_processes(config, *start_mpi_job(config.comm), launched_ranks(), body);
}

int run_tcp_job(const Config& config, const std::function<void(World&)>& body) {
  const auto start = find_job_start();
  if (!start) {
    refuse_foreign_launcher();
    refuse_missing_launcher("tcp", ranks_wanted(config));
  }
  const auto job = start_tcp_job(start.value_or(JobStart{}), config);
  return run_processes(config, *job, job->size(), body);
}

// A failure of this copy alone is printed by this copy. A failure that all copies have is printed by the
// first.
int report_failure() {
  const Failure failure = describe_exception(std::current_exception());
  if (speaks_for_all() || failure.exit_code == PeerError::kExitCode)
    std::fprintf(stderr, "error: %s\n", failure.line.c_str());
  return failure.exit_code;
}

}  // namespace

World* current_world() { return inside_rank; }

void run_rank(World& world, const std::function<void(World&)>& body) {
  struct Inside {
    explicit Inside(World& world) { inside_rank = &world; }
    ~Inside() { inside_rank = nullptr; }
  };
  run_recorded(world, [&](World& recorded) {
    const Inside inside(recorded);
    run_users_code(body, recorded);
  });
}

int launch(const Config& config, const std::function<void(World&)>& body) {
  refuse_within_rank("launch");
  let_failed_checks_throw();
  KinetoRecording::keep_quiet();
  prepare_nccl(ranks_wanted(config));
  const auto run = [&](int ranks) { return run_prepared(config, prepare(config, ranks), nullptr, body); };
  try {
    if (config.elastic.is_on()) require_elastic_start(config);
    // With comm.backend local, every copy of the program runs its own job.
    if (config.comm.backend == "local") return run(config.ranks());
    const bool tcp = config.comm.backend == "tcp";
    if (under_mpirun() && !tcp) return run_mpi_job(config, body);
    const std::string base = choose_base_backend(choose_backend(config.comm.backend));
    if (base == "tcp") return run_tcp_job(config, body);
    if (base == "mpi") {
      refuse_missing_launcher(config.comm.backend, ranks_wanted(config));
      return run_mpi_job(config, body);
    }
    if (const auto copies = torchrun_copies())
      return run_in_first_copy(*copies, [&] {
        try {
          return run(copies->count);
        } catch (...) {
          return report_failure();  // run_in_first_copy() notifies the others
        }
      });
    refuse_foreign_launcher();
    return run(config.ranks());
  } catch (...) {
    return report_failure();
  }
}

std::optional<Failure> launch_quietly(const Config& config, const std::function<void(World&)>& body) {
  refuse_within_rank("launch_quietly");
  let_failed_checks_throw();
  KinetoRecording::keep_quiet();
  try {
    return run_local(config, prepare(config, config.ranks()).mesh, guarded(body));
  } catch (...) {
    return describe_exception(std::current_exception());
  }
}

}  // namespace gantry

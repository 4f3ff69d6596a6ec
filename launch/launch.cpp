#include "gantry/launch/launch.h"

#include <cstdio>
#include <optional>

#include <c10/util/Logging.h>

#include "gantry/comm/observed_backend.h"
#include "gantry/core/error.h"
#include "gantry/diagnosis/diagnosis.h"
#include "gantry/diagnosis/flight_recorder.h"
#include "gantry/launch/backends.h"
#include "gantry/launch/foreign_launcher.h"
#include "gantry/launch/quiet_launch.h"
#include "gantry/launch/torchrun.h"
#include "gantry/profiling/kineto_recording.h"

namespace gantry {
namespace {

thread_local World* inside_rank = nullptr;

// What is neither an error of Gantry's nor a lack of memory is of the body's own code, or of what that called.
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

// LibTorch throws where an allocation or a check fails, unless this flag is set. Debian's libsentencepiece has a
// FLAGS_minloglevel of its own, which is larger than LibTorch's of that name, is put in its place at load time, and
// reaches into this flag: the process was aborted instead.
void let_failed_checks_throw() { FLAGS_caffe2_use_fatal_for_enforce = false; }

recorder::JobSettings recorder_settings(const Config& config, int ranks, bool mpi) {
  return {.folder = config.output.empty() ? "gantry-recorder" : config.output + "/recorder",
          .ranks = ranks,
          .entries = config.comm.recorder,
          .several_processes = mpi && ranks > 1,
          .sentence_of = recorder::sentence_of};
}

void refuse_within_rank(const char* call) {
  if (inside_rank)
    throw UsageError({call, "this call was made within a rank of another launch", "", "call it once, from main()"});
}

// What is decided before ranks begin.
struct Preparation {
  std::string backend;
  Mesh mesh;
};

Preparation prepare(const Config& config, int ranks) {
  const auto& parallel = config.parallel;
  return {choose_backend(config.comm.backend), Mesh::hybrid(ranks, parallel.pipeline, parallel.data, parallel.tensor,
                                                            parallel.order, parallel.context, parallel.expert)};
}

int run_prepared(const Config& config, const Preparation& preparation, const std::function<void(World&)>& body) {
  const bool mpi = choose_base_backend(preparation.backend) == "mpi";
  const recorder::RecordedJob recorded(recorder_settings(config, preparation.mesh.size(), mpi));
  std::function<void(World&)> run = guarded(body);
  if (preparation.backend == "nccl")
    run = [on_device = std::move(run)](World& host) { run_on_nccl(host, on_device); };
  else if (preparation.backend == "ipc")
    run = [on_device = std::move(run)](World& host) { run_on_ipc(host, on_device); };
  return mpi ? launch_mpi(config, preparation.mesh, run) : launch_local(config, preparation.mesh, run);
}

// The ranks agree whether all may begin: what is wrong on one host, the others can't know.
int launch_under_launcher(const Config& config, const std::function<void(World&)>& body) {
  std::optional<Preparation> preparation;
  std::optional<Failure> failure;
  try {
    preparation = prepare(config, launched_ranks());
  } catch (...) {
    failure = describe_exception(std::current_exception());
  }
  if (const auto code = agree_to_start(failure, config.comm.timeout_seconds)) return *code;
  return run_prepared(config, *preparation, body);
}

// A failure that only this copy of the program can know is printed by it; one that all have, by the first.
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
  prepare_nccl();
  const auto run = [&](int ranks) { return run_prepared(config, prepare(config, ranks), body); };
  try {
    // Whoever asks for local ranks gets a job in every copy.
    if (config.comm.backend == "local") return run(config.ranks());
    if (under_launcher() && has_backend("mpi")) return launch_under_launcher(config, body);
    if (choose_base_backend(choose_backend(config.comm.backend)) == "mpi") {
      refuse_missing_launcher(config.ranks());
      return run(1);
    }
    if (const auto copies = torchrun_copies())
      return run_in_first_copy(*copies, [&] {
        try {
          return run(copies->count);
        } catch (...) {
          return report_failure();  // the others are notified too
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

#include "gantry/comm/launch.h"

#include <cstdio>

#include "gantry/comm/backends.h"
#include "gantry/comm/recorder/flight_recorder.h"
#include "gantry/comm/recording_backend.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

thread_local World* inside_rank = nullptr;

// A rank's body, whose operations are recorded, and within which a further launch is refused.
std::function<void(World&)> guarded(const std::function<void(World&)>& body) {
  return [&body](World& world) {
    struct Inside {
      explicit Inside(World& world) { inside_rank = &world; }
      ~Inside() { inside_rank = nullptr; }
    };
    run_recorded(world, [&](World& recorded) {
      const Inside inside(recorded);
      body(recorded);
    });
  };
}

recorder::JobSettings recorder_settings(const Config& config, int ranks, bool mpi) {
  return {.folder = config.output.empty() ? "gantry-recorder" : config.output + "/recorder",
          .ranks = ranks,
          .entries = config.comm.recorder,
          .several_processes = mpi && ranks > 1};
}

}  // namespace

World* current_world() { return inside_rank; }

int launch(const Config& config, const std::function<void(World&)>& body) {
  if (inside_rank)
    throw UsageError({"launch", "was called within a rank of another launch", "", "call it once, from main"});
  try {
    const bool mpi = choose_backend(config.comm.backend) == "mpi";
    const int ranks = mpi ? launched_ranks() : config.ranks();
    const Mesh mesh = Mesh::hybrid(ranks, config.parallel.pipeline, config.parallel.data, config.parallel.tensor,
                                   config.parallel.order);
    const recorder::RecordedJob recorded(recorder_settings(config, ranks, mpi));
    return mpi ? launch_mpi(config, mesh, guarded(body)) : launch_local(config, mesh, guarded(body));
  } catch (...) {
    const Failure failure = describe_exception(std::current_exception());
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (!rank || std::string(rank) == "0") std::fprintf(stderr, "error: %s\n", failure.line.c_str());
    return failure.exit_code;
  }
}

}  // namespace gantry

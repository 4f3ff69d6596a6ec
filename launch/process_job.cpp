#include "gantry/launch/process_job.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>

#include "gantry/comm/processes/job_hosts.h"
#include "gantry/comm/processes/process_end.h"
#include "gantry/comm/processes/process_engine.h"
#include "gantry/core/error.h"
#include "gantry/core/host/stop_request.h"
#include "gantry/core/host/this_host.h"
#include "gantry/diagnosis/flight_recorder.h"
#include "gantry/launch/backends.h"

namespace gantry {
namespace {

// The state of a rank before the ranks begin.
struct StartReport {
  int exit_code = 0;  // 0: nothing went wrong
  char line[2044] = "";

  std::string bytes() const { return {reinterpret_cast<const char*>(this), sizeof(*this)}; }
};

}  // namespace

std::optional<int> agree_to_start(StartedJob& job, const std::optional<Failure>& mine) {
  const int rank = job.rank();
  const std::string name = fmt::format("rank {} on {}", rank, host_name());
  const std::string own_error = mine ? name + ": " + mine->line : "";
  const std::vector<std::string> failed = job.gather(mine ? "!" : ".", own_error);
  if (std::find(failed.begin(), failed.end(), "!") == failed.end()) return std::nullopt;
  StartReport own;
  if (mine) {
    own.exit_code = mine->exit_code;
    std::strncpy(own.line, mine->line.c_str(), sizeof(own.line) - 1);
  }
  const std::vector<std::string> said = job.gather(own.bytes(), own_error);
  const auto is_own = [&](const std::string& one) { return one == own.bytes(); };
  if (mine && std::none_of(said.begin(), said.begin() + rank, is_own)) {
    const bool of_all = std::all_of(said.begin(), said.end(), is_own);
    std::fprintf(stderr, "error: %s\n", of_all ? mine->line.c_str() : own_error.c_str());
  }
  const auto first = std::find(failed.begin(), failed.end(), "!") - failed.begin();
  int exit_code = 0;
  std::memcpy(&exit_code, said[static_cast<std::size_t>(first)].data(), sizeof(exit_code));
  return exit_code;
}

JobControl::JobControl(std::unique_ptr<ControlPlane> plane, const std::string& name) : plane_(std::move(plane)) {
  set_early_end_line(name + ": the program ended during the rank's work; expected the body of launch to return");
  set_failure_listener(
      [plane = plane_.get()](int exit_code, const std::string& cause) { plane->tell(exit_code, cause); });
  recorder::set_record_requests([plane = plane_.get()] { plane->request_records(); });
}

JobControl::~JobControl() {
  set_early_end_line("");
  set_failure_listener({});
  recorder::set_record_requests({});
}

ControlOptions control_options(const CommConfig& config, int rank, int ranks,
                               const std::function<std::string(int)>& describe_rank) {
  return {.rank = rank,
          .ranks = ranks,
          .heartbeat_seconds = config.heartbeat_seconds,
          .lost_after_seconds = config.lost_after_seconds,
          .timeout_seconds = config.timeout_seconds,
          .describe_rank = describe_rank,
          .wants_stop = stop_requested_here};
}

std::optional<Rendezvous> launch_meeting() {
  const char* text = std::getenv(Rendezvous::kVariable);
  return text ? decode_meeting(text) : std::nullopt;
}

int run_process_job(const Config& config, const Mesh& mesh, JobEnding& ending,
                    const std::function<void(RankProcess&)>& begin, const std::function<void(World&)>& body) {
  RankProcess rank;  // must exist while the job is ended
  std::exception_ptr failure;
  try {
    begin(rank);
    set_rank_threads(config.comm, static_cast<int>(rank.backend->engine()->hosts().cores_of_rank() + 1e-6));
    World world(*rank.backend, config, mesh);
    body(world);
    rank.backend->close();
    if (rank.control) rank.control->leave();
  } catch (...) {
    failure = std::current_exception();
  }
  if (!failure) return 0;
  const Failure what = describe_exception(failure);
  ending.end_job(what.exit_code, what.line);
}

}  // namespace gantry

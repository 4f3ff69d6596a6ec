// Ranks as processes that communicate over sockets.
#include <cstdio>
#include <mutex>

#include "gantry/comm/processes/process_end.h"
#include "gantry/comm/processes/process_engine.h"
#include "gantry/comm/processes/transport.h"
#include "gantry/comm/tcp/tcp_transport.h"
#include "gantry/core/error.h"
#include "gantry/diagnosis/flight_recorder.h"
#include "gantry/launch/generations.h"
#include "gantry/launch/process_job.h"

namespace gantry {
namespace {

// Names of ranks, which include their coordinates once the mesh is known. May be used from any thread.
class RankNames {
 public:
  void set(const Mesh& mesh) {
    const std::lock_guard lock(mutex_);
    mesh_ = mesh;
  }
  std::string of(int rank) const {
    const std::lock_guard lock(mutex_);
    return mesh_ ? mesh_->describe_rank(rank) : "rank " + std::to_string(rank);
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Mesh> mesh_;
};

class TcpJob final : public StartedJob {
 public:
  TcpJob(const JobStart& start, const Config& config)
      : start_(start),
        is_elastic_(config.elastic.is_on() && start.ranks > 1),
        describe_rank_([this](int rank) { return names_.of(rank); }),
        ending_(start.rank, start.ranks, describe_rank_, /*aborts_all=*/false),
        generations_(start.rank, ending_) {
    set_failure_notes({recorder::record_failure, recorder::print_recorder_hint});
    if (start.ranks == 1) return;
    ControlOptions options = control_options(config.comm, start.rank, start.ranks, describe_rank_);
    if (is_elastic_) options.heartbeat_seconds = config.elastic.heartbeat;
    options.beats = is_elastic_;
    or_end_job([&] { plane_ = meet_as_started(start, config.comm, options, events()); });
    listen_to_failures(*plane_);
  }
  ~TcpJob() override { set_failure_listener({}); }

  int rank() const override { return start_.rank; }
  int size() const override { return start_.ranks; }
  std::vector<std::string> gather(const std::string& mine, const std::string& own_error) override {
    if (!plane_) return {mine};
    std::vector<std::string> all;
    or_end_job([&] { all = plane_->gather(mine); }, own_error);
    return all;
  }
  void leave() override {
    if (plane_) or_end_job([&] { plane_->leave(); });
  }
  bool joins() const override { return start_.joins; }
  int run(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body) override {
    names_.set(mesh);
    if (is_elastic_) {
      ControlPlane& plane = *plane_;
      const JobControl control(std::move(plane_), describe_rank_(rank()));
      listen_to_failures(plane);
      return generations_.run(config, mesh, plane, body);
    }
    return run_process_job(
        config, mesh, ending_, [&](RankProcess& process) { begin(process, config.comm); }, body);
  }

 private:
  ControlEvents events() {
    ControlEvents events = ending_.events();
    if (!is_elastic_) return events;
    events.on_left = [this](const std::set<int>& ranks) { generations_.left(ranks); };
    events.on_regroup = [this](const JobMembers& members) { generations_.regrouped(members); };
    events.on_waiting = [this] { generations_.replica_came(); };
    return events;
  }

  // In an elastic job, the end of a connection does not fail the job: the launch decides whether the job
  // continues.
  void listen_to_failures(ControlPlane& plane) const {
    set_failure_listener([&plane, is_elastic = is_elastic_](int exit_code, const std::string& cause) {
      if (!is_elastic || exit_code != PeerError::kExitCode) plane.tell(exit_code, cause);
    });
  }

  // Ends the job instead of throwing, because an exception would destroy this object while a thread of
  // ending_'s events still uses it.
  void or_end_job(const std::function<void()>& call, const std::string& own_error = "") {
    try {
      call();
    } catch (...) {
      if (!own_error.empty()) std::fprintf(stderr, "error: %s\n", own_error.c_str());
      const Failure what = describe_exception(std::current_exception());
      ending_.end_job(what.exit_code, what.line);
    }
  }

  void begin(RankProcess& process, const CommConfig& config) {
    const WaitLimits waits{config.timeout_seconds, config.lost_after_seconds};
    std::unique_ptr<Transport> transport;
    if (plane_) {
      ControlPlane& plane = *plane_;
      process.control = std::make_unique<JobControl>(std::move(plane_), describe_rank_(rank()));
      transport = make_tcp_transport(plane, rank(), size(), config.timeout_seconds, describe_rank_);
    } else {
      transport = make_tcp_transport(
          {.describe_rank = describe_rank_,
           .gather = [](const std::string& mine, const std::string&) { return std::vector<std::string>{mine}; }});
    }
    process.backend = make_process_backend(std::move(transport), ending_.failures(), waits, describe_rank_);
    ending_.set_lost_ranks([engine = process.backend->engine()] { return engine->lost_ranks(); });
  }

  const JobStart start_;
  const bool is_elastic_;
  RankNames names_;
  const std::function<std::string(int)> describe_rank_;
  JobEnding ending_;
  JobGenerations generations_;
  std::unique_ptr<ControlPlane> plane_;
};

}  // namespace

std::unique_ptr<StartedJob> start_tcp_job(const JobStart& start, const Config& config) {
  return std::make_unique<TcpJob>(start, config);
}

std::unique_ptr<Transport> make_tcp_transport(ControlPlane& plane, int rank, int ranks, double timeout_seconds,
                                              const std::function<std::string(int)>& describe_rank) {
  return make_tcp_transport(
      {.rank = rank,
       .size = ranks,
       .address = plane.address(),
       .token = plane.meeting().token,
       .timeout_seconds = timeout_seconds,
       .describe_rank = describe_rank,
       .gather = [&plane](const std::string& mine, const std::string&) { return plane.gather(mine); }});
}

}  // namespace gantry

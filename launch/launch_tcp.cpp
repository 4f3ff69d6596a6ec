// Ranks as processes whose messages go over sockets.
#include <cstdio>
#include <mutex>

#include "gantry/comm/processes/process_end.h"
#include "gantry/comm/processes/process_engine.h"
#include "gantry/comm/processes/transport.h"
#include "gantry/comm/tcp/tcp_transport.h"
#include "gantry/core/error.h"
#include "gantry/diagnosis/flight_recorder.h"
#include "gantry/launch/process_job.h"

namespace gantry {
namespace {

// Names of ranks, which have their places in the mesh once that is known. Asked from any thread.
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
  TcpJob(const JobStart& start, const CommConfig& config)
      : start_(start),
        describe_rank_([this](int rank) { return names_.of(rank); }),
        ending_(start.rank, start.ranks, describe_rank_, /*aborts_all=*/false) {
    set_failure_notes({recorder::record_failure, recorder::print_recorder_hint});
    if (start.ranks == 1) return;
    or_end_job([&] {
      plane_ = meet_as_started(start, config, control_options(config, start.rank, start.ranks, describe_rank_),
                               ending_.events());
    });
    set_failure_listener(
        [plane = plane_.get()](int exit_code, const std::string& cause) { plane->tell(exit_code, cause); });
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
  int run(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body) override {
    names_.set(mesh);
    return run_process_job(
        config, mesh, ending_, [&](RankProcess& process) { begin(process, config.comm); }, body);
  }

 private:
  // A throw would destroy this while a thread of ending_'s events still uses it.
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
  RankNames names_;
  const std::function<std::string(int)> describe_rank_;
  JobEnding ending_;
  std::unique_ptr<ControlPlane> plane_;
};

}  // namespace

std::unique_ptr<StartedJob> start_tcp_job(const JobStart& start, const CommConfig& config) {
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

// Ranks as processes whose messages go over sockets.
#include <mutex>

#include "gantry/comm/processes/process_end.h"
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
    if (start.ranks > 1)
      plane_ = meet_as_started(start, config, control_options(config, start.rank, start.ranks, describe_rank_),
                               ending_.events());
  }

  // If the ranks don't begin, all leave together.
  ~TcpJob() override {
    try {
      if (plane_) plane_->leave();
    } catch (const std::exception&) {
      // The job has failed, which is known.
    }
  }

  int rank() const override { return start_.rank; }
  int size() const override { return start_.ranks; }
  std::vector<std::string> gather(const std::string& mine, const std::string&) override {
    return plane_ ? plane_->gather(mine) : std::vector<std::string>{mine};
  }
  int run(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body) override {
    names_.set(mesh);
    return run_process_job(
        config, mesh, ending_, [&] { return begin(config.comm); }, body);
  }

 private:
  RankProcess begin(const CommConfig& config) {
    const WaitLimits waits{config.timeout_seconds, config.lost_after_seconds};
    RankProcess process;
    std::unique_ptr<Transport> transport;
    if (plane_) {
      transport = make_tcp_transport(*plane_, rank(), size(), config.timeout_seconds, describe_rank_);
      process.control = std::make_unique<JobControl>(std::move(plane_), describe_rank_(rank()));
    } else {
      transport = make_tcp_transport(
          {.describe_rank = describe_rank_,
           .gather = [](const std::string& mine, const std::string&) { return std::vector<std::string>{mine}; }});
    }
    process.backend = make_process_backend(std::move(transport), ending_.failures(), waits, describe_rank_);
    return process;
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

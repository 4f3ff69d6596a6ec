// Runs the body of a rank of an elastic job, once for each generation.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>

#include "gantry/comm/processes/process_engine.h"
#include "gantry/launch/generation.h"
#include "gantry/launch/process_job.h"

namespace gantry {

class JobGenerations final : public Generation {
 public:
  // `rank`: the rank of this process among all that the launch has started. It is constant, unlike the rank
  // in its world.
  JobGenerations(int rank, JobEnding& ending) : rank_(rank), ending_(ending) {}

  // Events of the control plane.
  void regrouped(const JobMembers& members);
  void replica_came() { waits_ = true; }
  void left(const std::set<int>& ranks);

  // Runs the body until the job is over, or ends the job. `mesh`: the mesh of generation 0.
  int run(const Config& config, const Mesh& mesh, ControlPlane& plane, const std::function<void(World&)>& body);

  int number() const override { return members_.generation; }
  bool has_ended() const override { return plane_->members().generation > members_.generation; }
  bool replica_waits() const override { return waits_; }
  [[noreturn]] void grow() override;
  bool agree(const std::string& mine) override;
  const std::vector<std::string>& reports() const override { return reports_; }
  int place_in_reports() const override { return place_in(next_); }
  std::vector<int> replicas_in_reports() const override;
  void carry(std::any state, std::string report) override;
  std::any& carried() override { return carried_; }

 private:
  std::shared_ptr<KnownFailures> begin_generation();
  void run_body(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body);
  bool may_continue(const std::exception_ptr& failure) const;
  bool continues_after(std::exception_ptr& failure);
  bool wait_for_change();
  std::vector<int> lost_ranks() const;
  int place_in(const JobMembers& members) const;

  const int rank_;
  JobEnding& ending_;
  ControlPlane* plane_ = nullptr;
  ElasticPolicy policy_;
  JobMembers members_, next_;  // the current ranks, and the ranks of the last agree()
  std::vector<std::string> reports_;
  std::any carried_;
  std::string carried_report_;
  std::weak_ptr<ProcessEngine> engine_;  // the engine of the current generation
  std::vector<int> lost_ranks_;          // when the last generation ended: ranks without a connection
  std::atomic<bool> waits_{false};
  std::mutex mutex_;  // guards the next member, and the failures of the current generation
  JobMembers heard_;  // the newest ranks that the control plane has reported
};

// The requirements of an elastic job for its start. Throws ConfigError if the ranks are not those of `gantry
// launch --backend tcp`.
void require_elastic_start(const Config& config);
// The same for its mesh.
ElasticPolicy elastic_policy(const Config& config, const Mesh& mesh);

}  // namespace gantry

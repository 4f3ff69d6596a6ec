#include "gantry/launch/generations.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "gantry/comm/control/timers.h"
#include "gantry/comm/tcp/tcp_transport.h"
#include "gantry/core/axis.h"
#include "gantry/core/error.h"
#include "gantry/launch/backends.h"

namespace gantry {
namespace {

constexpr const char* kChangedText = "the ranks of the job have changed";
constexpr int kMostElasticRanks = static_cast<int>(kMostPayload / 4) - 3;  // the limit of the policy frame

// Time for the launch to end a generation, after a rank has lost a connection.
constexpr double kWordSeconds = 2;

Generation* current = nullptr;
bool has_run = false;

// The mesh of a generation: the same axes with fewer or more replicas.
Mesh mesh_of(const Config& config, int ranks) {
  const ParallelConfig& parallel = config.parallel;
  return Mesh::hybrid(ranks, parallel.pipeline, /*data=*/0, parallel.tensor, parallel.order, parallel.context,
                      parallel.expert);
}

Config config_of(Config config, int replicas) {
  if (config.parallel.data > 0) config.parallel.data = replicas;
  return config;
}

}  // namespace

Generation* current_generation() { return current; }

void require_elastic_start(const Config& config) {
  const auto start = find_job_start();
  const bool by_launch = start && start->by_launch;
  if (by_launch && choose_backend(config.comm.backend) == "tcp") return;
  throw ConfigError({"elastic", "the ranks of this job cannot continue without one of them",
                     "processes on the CPU that gantry launch has started",
                     "run gantry launch --backend tcp -n RANKS -- PROGRAM, or remove the section elastic"});
}

ElasticPolicy elastic_policy(const Config& config, const Mesh& mesh) {
  const ElasticConfig& elastic = config.elastic;
  ElasticPolicy policy{elastic.min_replicas, elastic.rejoin, elastic.heartbeat, {}};
  for (int rank = 0; rank < mesh.size(); ++rank) policy.replicas.push_back(mesh.coordinate(rank, axis::kData));
  const int replicas =
      policy.replicas.empty() ? 0 : *std::max_element(policy.replicas.begin(), policy.replicas.end()) + 1;
  if (mesh.size() > kMostElasticRanks)
    throw ConfigError({"elastic", fmt::format("the job has {} ranks", mesh.size()),
                       fmt::format("at most {} ranks in an elastic job", kMostElasticRanks), "remove the section"});
  if (replicas < elastic.min_replicas)
    throw ConfigError({"elastic.min_replicas",
                       fmt::format("the job has {} replicas, fewer than {}", replicas, elastic.min_replicas),
                       "at least elastic.min_replicas replicas", "start more ranks, or lower elastic.min_replicas"});
  if (elastic.max_replicas > 0 && replicas > elastic.max_replicas)
    throw ConfigError({"elastic.max_replicas",
                       fmt::format("the job has {} replicas, more than {}", replicas, elastic.max_replicas),
                       "at most elastic.max_replicas replicas", "start fewer ranks, or raise elastic.max_replicas"});
  if (!config.data.format.empty() && config.data.batch_size < replicas)
    throw ConfigError({"data.batch_size",
                       fmt::format("{} samples are too few for {} replicas", config.data.batch_size, replicas),
                       fmt::format("at least {}", replicas), "raise it, or start fewer ranks"});
  return policy;
}

// Called on the control plane's thread.
void JobGenerations::regrouped(const JobMembers& members) {
  const std::lock_guard lock(mutex_);
  heard_ = members;
  waits_ = false;  // the hub sends another `waiting` frame if a replica still waits
  ending_.failures()->first().set(PeerError::kExitCode, kChangedText);
}

void JobGenerations::left(const std::set<int>& ranks) {
  const std::lock_guard lock(mutex_);
  std::vector<int> places;
  for (std::size_t i = 0; i < heard_.ranks.size(); ++i)
    if (ranks.contains(heard_.ranks[i])) places.push_back(static_cast<int>(i));
  ending_.failures()->note_ended(places);
}

std::shared_ptr<KnownFailures> JobGenerations::begin_generation() {
  const std::lock_guard lock(mutex_);
  ending_.begin_generation();
  if (heard_.generation != members_.generation) ending_.failures()->first().set(PeerError::kExitCode, kChangedText);
  return ending_.failures();
}

int JobGenerations::place_in(const JobMembers& members) const {
  return static_cast<int>(std::find(members.ranks.begin(), members.ranks.end(), rank_) - members.ranks.begin());
}

std::vector<int> JobGenerations::replicas_in_reports() const {
  std::vector<int> replicas;
  for (const int rank : next_.ranks) replicas.push_back(policy_.replicas[static_cast<std::size_t>(rank)]);
  return replicas;
}

void JobGenerations::carry(std::any state, std::string report) {
  carried_ = std::move(state);
  carried_report_ = std::move(report);
}

void JobGenerations::grow() {
  if (place_in(members_) == 0) plane_->grow();
  wait_for_change();
  throw PeerError(kChangedText);
}

// If the launch does not report a change, reports a rank whose connection has ended to the launch.
bool JobGenerations::wait_for_change() {
  if (plane_->wait_for_generation(members_.generation, kWordSeconds)) return true;
  const std::vector<int> lost = lost_ranks();
  if (!lost.empty())
    plane_->lose_unreachable(members_.generation, members_.ranks[static_cast<std::size_t>(lost.front())]);
  return plane_->wait_for_generation(members_.generation, policy_.lost_after_seconds() + control::kBrokenSeconds);
}

std::vector<int> JobGenerations::lost_ranks() const {
  const auto engine = engine_.lock();
  return engine ? engine->lost_ranks() : lost_ranks_;
}

bool JobGenerations::agree(const std::string& mine) {
  if (!wait_for_change()) return false;
  for (;;) {
    const JobMembers next = plane_->members();
    try {
      reports_ = plane_->gather(mine, next.generation);
      next_ = next;
      return true;
    } catch (const PeerError&) {
      if (plane_->members().generation == next.generation) throw;
    }
  }
}

int JobGenerations::run(const Config& config, const Mesh& mesh, ControlPlane& plane,
                        const std::function<void(World&)>& body) {
  plane_ = &plane;
  if (std::exchange(has_run, true))
    throw UsageError({"elastic", "this is the second launch() of the program", "one launch() in an elastic job",
                      "remove the section elastic, or start a job for each launch()"});
  policy_ = elastic_policy(config, mesh);
  current = this;
  for (int rank = 0; rank < mesh.size(); ++rank) members_.ranks.push_back(rank);
  next_ = members_;
  std::exception_ptr failure;
  if (plane.members().generation == 0) {
    const std::lock_guard lock(mutex_);
    if (heard_.ranks.empty()) heard_ = members_;
    plane.become_elastic(policy_);
  } else {
    carried_report_ = kJoinsReport;
    failure = std::make_exception_ptr(PeerError(kChangedText));
  }
  for (;;) {
    if (failure && !continues_after(failure)) {
      const Failure what = describe_exception(failure);
      ending_.end_job(what.exit_code, what.line);
    }
    failure = nullptr;
    members_ = next_;
    try {
      run_body(config_of(config, static_cast<int>(members_.ranks.size()) * mesh.axis_size(axis::kData) / mesh.size()),
               mesh_of(config, static_cast<int>(members_.ranks.size())), body);
      current = nullptr;
      return 0;
    } catch (...) {
      failure = std::current_exception();
    }
  }
}

// Returns true once the ranks of the next generation are connected. Otherwise `failure` is the reason why the
// job ends.
bool JobGenerations::continues_after(std::exception_ptr& failure) try {
  if (!may_continue(failure)) return false;
  return next_.generation > members_.generation || agree(carried_report_);
} catch (...) {
  failure = std::current_exception();
  return false;
}

// An error of this rank ends the job, unless the change of ranks may have caused it.
bool JobGenerations::may_continue(const std::exception_ptr& failure) const {
  return describe_exception(failure).exit_code == PeerError::kExitCode || has_ended();
}

void JobGenerations::run_body(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body) {
  const auto failures = begin_generation();
  lost_ranks_.clear();
  const auto describe_rank = [mesh](int rank) { return mesh.describe_rank(rank); };
  const int generation = members_.generation;
  auto transport =
      make_tcp_transport({.rank = place_in(members_),
                          .size = mesh.size(),
                          .address = plane_->address(),
                          .token = plane_->meeting().token,
                          .timeout_seconds = config.comm.timeout_seconds,
                          .describe_rank = describe_rank,
                          .gather = [this, generation](const std::string& mine,
                                                       const std::string&) { return plane_->gather(mine, generation); },
                          .check = [failures] { failures->throw_if_failed(); }});
  const auto backend = make_process_backend(
      std::move(transport), failures, {config.comm.timeout_seconds, config.comm.lost_after_seconds}, describe_rank);
  engine_ = backend->engine();
  set_rank_threads(config.comm, static_cast<int>(backend->engine()->hosts().cores_of_rank() + 1e-6));
  World world(*backend, config, mesh);
  try {
    body(world);
    backend->close();
    plane_->leave();
  } catch (...) {
    lost_ranks_ = backend->engine()->lost_ranks();
    engine_.reset();
    throw;
  }
}

}  // namespace gantry

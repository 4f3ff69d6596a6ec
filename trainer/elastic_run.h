// The training state of a run over the generations of an elastic job (launch/generation.h).
//
// Before the optimizer's step, all ranks meet. If a rank is lost, the remaining ranks agree on the last completed step
// (trainer/step_commit.h). Those that have only prepared it complete it. Then all carry their state to the run of the
// next generation. A replica that joins there gets the state from another replica.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gantry/comm/world.h"
#include "gantry/launch/generation.h"
#include "gantry/plugins/plugin.h"
#include "gantry/trainer/metrics.h"
#include "gantry/trainer/step_commit.h"

namespace gantry {

// Returns the metrics of a step that a generation completed, from the report to the next one.
StepMetrics carried_metrics(const nlohmann::json& report);

class ElasticRun {
 public:
  // Not owned. Null: the job is not elastic, and only is_on() may be called.
  ElasticRun(Generation* generation, World& world) : generation_(generation), world_(world) {}

  bool is_on() const { return generation_ != nullptr; }
  int generation() const { return generation_->number(); }
  // True if another rank, or this one, has the training state of an earlier generation.
  // Throws PeerError if all of those that had it were lost.
  bool has_state() const;
  // The time at which the run of that state began, in seconds since 1970; 0 without one.
  std::int64_t started() const;

  // Gives `boosted` the state of the last completed step, and returns the numbers of `record` (see carry()). Collective
  // over the world; requires has_state().
  nlohmann::json restore(Plugin& plugin, Boosted& boosted);
  // From here on this rank has the state after `step` steps.
  void begin(std::int64_t step, const Boosted& boosted);

  // Takes the optimizer's step, after all ranks have met. Returns false if it was skipped. Collective over the world.
  bool step(const StepMetrics& metrics, Boosted& boosted);
  // All ranks know the metrics of the last step.
  void published() { latest_.reset(); }
  // The number of completed steps.
  std::int64_t done() const { return progress_.done; }
  void grow() { generation_->grow(); }

  // True for an error that the loss of a rank may have caused.
  bool may_continue(const Error& error) const;
  // After such an error: agrees on the last completed step and keeps its state. `record` is called after that, for the
  // run's other numbers.
  void carry(Plugin& plugin, Boosted& boosted, std::int64_t started, const std::function<nlohmann::json()>& record);
  // Keeps the state after the last completed step, for a loss after the run.
  void keep(Plugin& plugin, Boosted& boosted, std::int64_t started, const std::function<nlohmann::json()>& record);

 private:
  StepCommit commit() const;
  void complete(const StepMetrics& metrics, const Boosted& boosted);  // the step of these metrics
  std::string report(std::int64_t started) const;

  Generation* const generation_;
  World& world_;
  RankProgress progress_;
  std::int64_t position_ = 0;            // in the data, after progress_.done steps
  std::optional<StepMetrics> prepared_;  // the step that is prepared
  std::optional<StepMetrics> latest_;    // step progress_.done, until published()
};

}  // namespace gantry

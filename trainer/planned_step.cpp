#include "gantry/trainer/planned_step.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gantry/planner/calibration.h"
#include "gantry/planner/config.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

// The planner uses the same sum to choose the rank whose parts it predicts.
double work_of(const planner::Seconds& seconds) {
  return seconds.compute + seconds.tensor + seconds.context + seconds.expert + seconds.data;
}

planner::Seconds longest_of(const std::vector<std::string>& ranks) {
  planner::Seconds longest;
  for (const std::string& text : ranks) {
    const planner::Seconds each = planner::seconds_of_json(nlohmann::json::parse(text), "a rank's step");
    if (work_of(each) >= work_of(longest)) longest = each;
  }
  return longest;
}

// Returns the largest peak among the ranks of each pipeline rank.
std::vector<double> peaks_by_stage(const Mesh& mesh, const std::vector<std::int64_t>& peaks) {
  std::vector<double> most(static_cast<std::size_t>(mesh.axis_size(axis::kPipeline)), 0);
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    double& stage = most[static_cast<std::size_t>(mesh.coordinate(static_cast<int>(rank), axis::kPipeline))];
    stage = std::max(stage, static_cast<double>(peaks[rank]));
  }
  return most;
}

}  // namespace

planner::Estimate predicted_step(const Config& config, const planner::Cluster& cluster, const Mesh& mesh) {
  const planner::PlanRequest request = planner::plan_request(config);
  return planner::estimate(request.workload, planner::with_data(request, mesh.axis_size(axis::kData)), cluster);
}

Json planned_step(const Config& config, const ProcessGroupMesh& mesh, const RunFacts& facts) {
  const auto ranks =
      gather_texts(mesh.world_group(), planner::to_json({.seconds = facts.parts, .memory_bytes = {}}).dump());
  if (mesh.rank() != 0 || facts.timed_steps == 0) return nullptr;
  const planner::StepFacts measured{longest_of(ranks), peaks_by_stage(mesh.mesh(), facts.peaks)};
  Json plan = {{"steps", facts.timed_steps}, {"measured", planner::to_json(measured)}};
  if (!facts.cluster) return plan;
  const planner::StepFacts predicted = planner::facts_of(predicted_step(config, *facts.cluster, mesh.mesh()));
  plan["cluster"] = facts.cluster->name;
  plan["predicted"] = planner::to_json(predicted);
  if (const auto all = planner::gaps(predicted, measured); !all.empty())
    plan["largest_gap"] = {{"part", all.front().part}, {"text", planner::describe(all.front())}};
  return plan;
}

}  // namespace gantry

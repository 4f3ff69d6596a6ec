#include "gantry/trainer/train.h"

#include "gantry/booster/recipe.h"
#include "gantry/cli/engine/commands.h"
#include "gantry/cli/engine/own_families.h"
#include "gantry/launch/backends.h"
#include "gantry/launch/torchrun.h"
#include "gantry/planner/config.h"
#include "gantry/planner/plan.h"
#include "gantry/trainer/sample_text.h"

namespace gantry::cli {
namespace {

// Returns the number of ranks that a launcher has started, or else the ranks of the cluster, which this process starts.
int given_ranks(const Config& config, const planner::Cluster& cluster) {
  const bool starts_threads = config.comm.backend == "local";
  if (!starts_threads && under_launcher()) return launched_ranks();
  if (const auto copies = torchrun_copies(); copies && !starts_threads) return copies->count;
  return cluster.ranks();
}

// Returns the configuration with all auto values chosen. Every process of a job chooses the same values.
Config planned(const TrainArguments& arguments, const std::set<std::string>& open, RunOptions& options) {
  if (!options.cluster) planner::refuse_without_cluster("gantry train", open);
  outline_own_families(arguments.config, arguments.sets);
  const planner::PlanRequest request = planner::read_auto_request(arguments.config, arguments.sets);
  const planner::Cluster cluster = planner::with_ranks(*options.cluster, given_ranks(request.config, *options.cluster),
                                                       planner::is_builtin_cluster(arguments.cluster));
  planner::PlannedConfig made = planner::planned_config(arguments.config, arguments.sets, request, cluster);
  options.plan = made.text;
  return std::move(made.config);
}

}  // namespace

int run_train(const TrainArguments& arguments) {
  RunOptions options{.status = arguments.status};
  if (!arguments.cluster.empty()) options.cluster = planner::load_cluster(arguments.cluster);
  const auto open = planner::auto_keys(arguments.config, arguments.sets);
  const Config config =
      open.empty() ? Config::load(arguments.config, arguments.sets) : planned(arguments, open, options);
  config.require_training();
  load_libraries(config);
  if (!arguments.sample.empty()) options.sample = std::make_shared<SampleText>(arguments.sample, resolve_model(config));
  return train(config, options);
}

}  // namespace gantry::cli

#include "gantry/cli/plan_command.h"

#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "gantry/cli/commands.h"
#include "gantry/cli/plan_text.h"
#include "gantry/core/error.h"
#include "gantry/core/output.h"
#include "gantry/planner/configured.h"
#include "gantry/planner/estimate.h"

namespace gantry::cli {
namespace {

using planner::Cluster;

struct PlanArguments {
  std::string config, cluster;
  std::vector<std::string> sets;
  std::optional<int> hosts, per_host, ranks;
  bool json = false;
};

// The cluster as the flags say, and of its devices so many.
Cluster cluster_of(const PlanArguments& arguments, std::optional<int> ranks) {
  Cluster cluster = planner::load_cluster(arguments.cluster);
  if (arguments.per_host) cluster.per_host = *arguments.per_host;
  if (arguments.hosts) cluster.hosts = *arguments.hosts;
  if (!ranks) return cluster;
  const bool is_builtin = planner::is_builtin_cluster(arguments.cluster) && !arguments.hosts;
  if (!is_builtin && *ranks > cluster.ranks())
    throw ConfigError(
        {"cluster " + cluster.name,
         fmt::format("{} hosts of {} devices are fewer than {} ranks", cluster.hosts, cluster.per_host, *ranks),
         fmt::format("at most {} ranks", cluster.ranks()), "raise --hosts"});
  return planner::part_of(cluster, *ranks);
}

void run_estimate(const PlanArguments& arguments) {
  planner::PlanRequest request = planner::read_plan_request(arguments.config, arguments.sets, /*only_stated=*/true);
  planner::Layout& layout = request.stated;
  const bool data_follows = layout.data == 0;
  if (data_follows) layout.data = 1;
  const Cluster cluster =
      cluster_of(arguments, data_follows || arguments.hosts ? arguments.ranks : std::optional(layout.ranks()));
  if (data_follows) layout = planner::with_data(request, cluster.ranks() / std::max(1, layout.ranks()));
  const planner::Estimate result = planner::estimate(request.workload, layout, cluster);
  print_output(arguments.json ? estimate_json(result).dump(2) + "\n" : estimate_text(request, layout, cluster, result));
}

void add_cluster(CLI::App& command, PlanArguments& arguments) {
  command
      .add_option("--cluster", arguments.cluster,
                  "A cluster's YAML file, or a100_80g, h100_80g, h200, b200, selene_a100, vtrain_a100")
      ->required()
      ->type_name("NAME");
  command.add_option("--hosts", arguments.hosts, "Hosts, in place of the cluster's own number")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000));
  command.add_option("--per-host", arguments.per_host, "Devices of a host, in place of the cluster's own number")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  command.add_option("--ranks", arguments.ranks, "Ranks; all devices of the hosts if left out")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000));
  add_sets(command, arguments.sets);
}

}  // namespace

void add_plan_command(CLI::App& app) {
  auto* plan = app.add_subcommand("plan", "Estimate layouts for a model and a cluster, without running anything");
  plan->require_subcommand(1);
  auto arguments = std::make_shared<PlanArguments>();
  auto* estimate = plan->add_subcommand("estimate", "Step time and memory of the layout that a configuration states");
  estimate->add_option("config", arguments->config, "The configuration, a YAML file")->required();
  add_cluster(*estimate, *arguments);
  estimate->add_flag("--json", arguments->json, "As JSON");
  estimate->callback([arguments] { run_estimate(*arguments); });
}

}  // namespace gantry::cli

#include "gantry/cli/plan_command.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "gantry/cli/plan_calibrate_command.h"
#include "gantry/cli/plan_text.h"
#include "gantry/core/error.h"
#include "gantry/core/io/durable_file.h"
#include "gantry/core/io/output.h"
#include "gantry/planner/config.h"
#include "gantry/planner/estimate.h"
#include "gantry/planner/plan.h"
#include "gantry/planner/search.h"
#include "gantry/trainer/report/plan_page.h"

namespace gantry::cli {
namespace {

using planner::Cluster;

struct PlanArguments {
  std::string config, cluster;
  std::vector<std::string> sets;
  std::optional<int> hosts, per_host, ranks;
  bool json = false;
  int top = 10;
  std::string output;   // file for the configuration with the best layout
  std::string why_not;  // "tensor=8,pipeline=2"
  std::string page;     // HTML file
  bool explain = false;
};

// Loads the cluster, applies the flags, and limits it to `ranks` devices.
Cluster cluster_of(const PlanArguments& arguments, std::optional<int> ranks) {
  Cluster cluster = planner::load_cluster(arguments.cluster);
  if (arguments.per_host) cluster.per_host = *arguments.per_host;
  if (arguments.hosts) cluster.hosts = *arguments.hosts;
  if (!ranks) return cluster;
  return planner::with_ranks(cluster, *ranks, planner::is_builtin_cluster(arguments.cluster) && !arguments.hosts);
}

void run_estimate(const PlanArguments& arguments) {
  planner::PlanRequest request = planner::read_plan_request(arguments.config, arguments.sets, /*only_stated=*/true);
  planner::Layout& layout = request.stated;
  const bool data_follows = layout.data == 0;
  if (data_follows) layout.data = 1;
  std::optional<int> ranks = arguments.ranks;
  if (!ranks && !arguments.hosts && !data_follows) ranks = layout.ranks();
  const Cluster cluster = cluster_of(arguments, ranks);
  if (data_follows) layout = planner::with_data(request, std::max(1, cluster.ranks() / layout.ranks()));
  const planner::Estimate result = planner::estimate(request.workload, layout, cluster);
  print_output(arguments.json ? estimate_json(result).dump(2) + "\n" : estimate_text(request, layout, cluster, result));
}

// Converts "tensor=8,pipeline=2" to overrides as in --set.
std::vector<std::string> sets_of(const std::string& layout) {
  std::vector<std::string> sets;
  std::size_t words_read = 0;
  std::istringstream words(layout);
  for (std::string word; std::getline(words, word, ',');) {
    const std::string key = word.substr(0, word.find('='));
    std::vector<std::string> known;
    for (const auto& path : planner::plannable_keys()) {
      known.push_back(path.substr(path.find('.') + 1));
      if ((key == known.back() || key == path) && word.size() > key.size() + 1)
        sets.push_back(path + word.substr(key.size()));
    }
    if (++words_read == sets.size()) continue;
    throw UsageError({"--why-not " + layout, "'" + word + "' is not a KEY=VALUE of a layout",
                      fmt::format("KEY=VALUE, separated by commas, with a KEY of {}", fmt::join(known, ", ")),
                      "write for example tensor=2,pipeline=2"});
  }
  return sets;
}

// Compares the stated layout with the best one, or explains why the stated layout is impossible.
std::string why_not_text(const PlanArguments& arguments, const Cluster& cluster, const planner::PlannedLayout& best) {
  std::vector<std::string> sets = arguments.sets;
  for (const auto& set : sets_of(arguments.why_not)) sets.push_back(set);
  const auto request = planner::read_plan_request(arguments.config, sets, /*only_stated=*/false);
  const auto found = planner::search(request, cluster, {.top = 1});
  const std::string start = "\nwhy not " + arguments.why_not + ": ";
  if (found.best.empty()) return start + planner::why_none(found, request, cluster) + "\n";
  const planner::PlannedLayout& other = found.best.front();
  return start +
         fmt::format("its best, {}, takes {:.4g} s, {:+.1f}%\n", describe(other.layout), other.estimate.step_seconds,
                     100 * (other.estimate.step_seconds / best.estimate.step_seconds - 1)) +
         comparison_text(best, other);
}

// The best layouts after single changes of the cluster.
std::string changes_text(const planner::PlanRequest& request, const Cluster& cluster, double seconds) {
  std::string text;
  for (const auto& [change, best] : planner::what_if(request, cluster))
    text += fmt::format("with {}: {:.4g} s, {:+.1f}%: {}\n", change, best.estimate.step_seconds,
                        100 * (best.estimate.step_seconds / seconds - 1), describe(best.layout));
  return "\n" + text;
}

void run_plan(const PlanArguments& arguments) {
  if (arguments.config.empty())
    throw UsageError({"gantry plan", "no configuration is given", "gantry plan CONFIG --cluster NAME", "add CONFIG"});
  if (arguments.cluster.empty())
    throw UsageError({"gantry plan", "--cluster is missing", "gantry plan CONFIG --cluster NAME", "add --cluster"});
  if (arguments.json && (arguments.explain || !arguments.why_not.empty()))
    throw UsageError({"--json",
                      std::string("the comparison of ") + (arguments.explain ? "--explain" : "--why-not") + " is text",
                      "one of both flags", "leave out --json"});
  const auto request = planner::read_plan_request(arguments.config, arguments.sets, /*only_stated=*/false);
  const Cluster cluster = cluster_of(arguments, arguments.ranks);
  const auto found = planner::search(request, cluster, {.top = std::max(arguments.top, arguments.explain ? 2 : 1)});
  planner::require_layouts(found, request, cluster);
  const auto best_sets = overrides_of(found.best.front().layout);
  if (!arguments.output.empty())
    write_text_durably(arguments.output, planner::configured(arguments.config, arguments.sets, best_sets).to_yaml());
  if (!arguments.page.empty()) write_text_durably(arguments.page, plan_page(arguments.config, request, cluster, found));
  if (arguments.json) return print_output(plan_json(found).dump(2) + "\n");
  std::string text = plan_text(found, cluster, arguments.top);
  if (arguments.explain && found.best.size() > 1) text += "\n" + comparison_text(found.best[0], found.best[1]);
  if (arguments.explain) text += changes_text(request, cluster, found.best.front().estimate.step_seconds);
  if (!arguments.why_not.empty()) text += why_not_text(arguments, cluster, found.best.front());
  print_output(text);
}

CLI::Option* add_cluster(CLI::App& command, PlanArguments& arguments) {
  auto* cluster =
      command
          .add_option("--cluster", arguments.cluster,
                      "The YAML file of a cluster, or a100_80g, h100_80g, h200, b200, selene_a100, vtrain_a100")
          ->type_name("NAME");
  command.add_option("--hosts", arguments.hosts, "Number of hosts, instead of the number in the cluster file")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000));
  command.add_option("--per-host", arguments.per_host, "Devices per host, instead of the number in the cluster file")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  command.add_option("--ranks", arguments.ranks, "Number of ranks; default: all devices of the hosts")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000));
  add_sets(command, arguments.sets);
  return cluster;
}

}  // namespace

void add_plan_command(CLI::App& app, PlanMeasureArguments& measure, const std::function<void()>& run_measure,
                      const Prepare& prepare) {
  auto* plan = app.add_subcommand("plan", "Find the fastest layouts of a model on a cluster, by simulation");
  plan->require_subcommand(0, 1);
  auto arguments = std::make_shared<PlanArguments>();
  plan->add_option("config", arguments->config, "The configuration, a YAML file; keys that it does not set are chosen");
  add_cluster(*plan, *arguments);
  plan->add_option("--top", arguments->top, "Number of layouts to show")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  plan->add_option("--output", arguments->output, "File to write: the configuration with the best layout")
      ->type_name("FILE");
  plan->add_flag("--explain", arguments->explain,
                 "Compare the best two layouts part by part, and show the effect of more memory or faster links");
  plan->add_option("--page", arguments->page, "HTML file to write: the plan as a page, with time and memory by part")
      ->type_name("FILE");
  plan->add_option("--why-not", arguments->why_not, "A layout to compare with the best one: tensor=8,pipeline=2")
      ->type_name("KEY=VALUE,...");
  plan->add_flag("--json", arguments->json, "Print JSON");

  auto stated = std::make_shared<PlanArguments>();
  auto* estimate = plan->add_subcommand("estimate", "Estimate step time and memory of the layout in a configuration");
  estimate->add_option("config", stated->config, "The configuration, a YAML file")->required();
  add_cluster(*estimate, *stated)->required();
  estimate->add_flag("--json", stated->json, "Print JSON");
  estimate->callback([stated, prepare] {
    prepare(stated->config, stated->sets);
    run_estimate(*stated);
  });
  add_measure_command(*plan, measure, run_measure);
  add_calibrate_command(*plan);
  plan->callback([arguments, plan, prepare] {
    if (!plan->get_subcommands().empty()) return;
    if (!arguments->config.empty()) prepare(arguments->config, arguments->sets);
    run_plan(*arguments);
  });
}

}  // namespace gantry::cli

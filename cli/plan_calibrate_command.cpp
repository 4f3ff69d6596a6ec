#include "gantry/cli/plan_calibrate_command.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/core/error.h"
#include "gantry/core/io/durable_file.h"
#include "gantry/core/io/output.h"
#include "gantry/core/io/readable_file.h"
#include "gantry/planner/calibration.h"
#include "gantry/planner/config.h"

namespace gantry::cli {
namespace {

struct CalibrateArguments {
  std::vector<std::string> runs;  // `output` directories
  std::string cluster, output;
};

std::string text_of_run(const std::string& run, const char* name) {
  const std::string path = run + "/" + name;
  std::ifstream file = open_for_reading(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file)
    throw InputError({path, "the file cannot be read", "the `output` directory of a run",
                      "name the directory that contains the file"});
  return text;
}

planner::MeasuredStep step_of(const std::string& run) {
  const std::string path = run + "/report.json";
  const auto report = nlohmann::json::parse(text_of_run(run, "report.json"), nullptr, /*allow_exceptions=*/false);
  const auto plan = report.is_object() ? report.value("plan", nlohmann::json()) : nlohmann::json();
  const auto measured = plan.is_object() ? plan.value("measured", nlohmann::json()) : nlohmann::json();
  const planner::Seconds seconds = planner::seconds_of_json(measured, path);
  const Config config = Config::parse_written(text_of_run(run, "config.yaml"), run + "/config.yaml");
  const planner::PlanRequest request = planner::plan_request(config);
  const auto ranks = static_cast<int>(report["mesh"]["ranks"].size());
  const int model = config.parallel.tensor * config.parallel.pipeline * config.parallel.context;
  return {request.workload, planner::with_data(request, ranks / model), seconds};
}

void run_calibrate(const CalibrateArguments& arguments) {
  const planner::Cluster cluster = planner::load_cluster(arguments.cluster);
  std::vector<planner::MeasuredStep> steps;
  for (const std::string& run : arguments.runs) steps.push_back(step_of(run));
  const planner::Calibration made = planner::calibrate(cluster, steps);
  std::string text =
      fmt::format("compared with {1}, computation takes {0:.3g} times as long and communication {2:.3g} times\n",
                  made.device, cluster.name, made.links);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto on = planner::with_ranks(made.cluster, steps[i].layout.ranks(), true);
    const double now = planner::estimate(steps[i].workload, steps[i].layout, on).step_seconds;
    const double measured = steps[i].seconds.sum();
    text += fmt::format("{}: {:.4g} s measured, {:.4g} s with the new rates ({:+.1f}%)\n", arguments.runs[i], measured,
                        now, 100 * (now / measured - 1));
  }
  const std::string yaml = planner::to_yaml(made.cluster);
  if (arguments.output.empty()) return print_output(yaml);
  write_text_durably(arguments.output, yaml);
  print_output(text + "cluster: " + arguments.output + "\n");
}

}  // namespace

void add_calibrate_command(CLI::App& plan) {
  auto arguments = std::make_shared<CalibrateArguments>();
  auto* calibrate = plan.add_subcommand(
      "calibrate", "Write a cluster file whose rates reproduce the step times that runs have measured");
  calibrate->add_option("runs", arguments->runs, "`output` directories of runs")->required();
  calibrate->add_option("--cluster", arguments->cluster, "The cluster to start from: a YAML file or a built-in name")
      ->required()
      ->type_name("NAME");
  calibrate->add_option("--output", arguments->output, "The YAML file to write; default: standard output")
      ->type_name("FILE");
  calibrate->callback([arguments] { run_calibrate(*arguments); });
}

}  // namespace gantry::cli

#include "gantry/planner/configured.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <iterator>

#include "gantry/core/error.h"
#include "gantry/core/mesh.h"
#include "gantry/core/schedule_choice.h"
#include "gantry/core/schedule_names.h"
#include "gantry/core/yaml_document.h"
#include "gantry/planner/open_keys.h"
#include "gantry/planner/stated_layout.h"

namespace gantry::planner {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) throw ConfigError({path, "can't be read", "a configuration file", "check the path"});
  return text;
}

void refuse_unknown(const Config& config) {
  if (is_schedule_file(config.schedule.name))
    throw ConfigError({"schedule.name", "is the file " + config.schedule.name, "a schedule by name",
                       "the planner makes schedules for the sizes that it tries"});
  if (const auto run = measured_run(config.schedule))
    throw ConfigError({"schedule.layers", "is balanced by the times of " + *run, "balanced: a plan weighs by its own",
                       "leave the folder out"});
  if (!config.schedule.recompute_layers.empty())
    throw ConfigError({"schedule.recompute_layers", "is set", "whole stages for a plan", "take it out"});
  if (config.schedule.memory_limit > 0)
    throw ConfigError(
        {"schedule.memory_limit", "is set", "the cluster's memory, which a plan keeps to", "take it out"});
  if (config.train.offload != "none")
    throw ConfigError(
        {"train.offload", "is " + config.train.offload, "none: a plan counts what devices hold", "take it out"});
  std::vector<std::string> order = config.parallel.order;
  std::erase(order, axis::kContext);
  if (order != ParallelConfig{}.order)
    throw ConfigError({"parallel.order", fmt::format("is [{}]", fmt::join(config.parallel.order, ", ")),
                       fmt::format("[{}], which the planner counts by", fmt::join(ParallelConfig{}.order, ", ")),
                       "take it out"});
  if (config.data.format.empty())
    throw ConfigError({"data", "is missing", "data.sequence_length and data.batch_size", "add it"});
}

}  // namespace

PlanRequest plan_request(const Config& config) {
  refuse_unknown(config);
  return {.config = config, .workload = stated_workload(config), .stated = stated_layout(config), .open = {}};
}

PlanRequest read_plan_request(const std::string& path, const std::vector<std::string>& sets, bool only_stated) {
  const std::string text = read_text(path);
  OpenKeys opened;
  if (!only_stated) opened = open_keys(parse_yaml(text, path), sets);
  PlanRequest request = plan_request(Config::parse(text, path, overrides_with(opened, sets)));
  request.open = opened.open;
  return request;
}

std::set<std::string> auto_keys(const std::string& path, const std::vector<std::string>& sets) {
  std::set<std::string> asked = open_keys(parse_yaml(read_text(path), path), sets, /*absent_too=*/false).asked;
  return need_plan(asked) ? asked : std::set<std::string>{};
}

PlanRequest read_auto_request(const std::string& path, const std::vector<std::string>& sets) {
  const std::string text = read_text(path);
  const OpenKeys opened = open_keys(parse_yaml(text, path), sets, /*absent_too=*/false);
  PlanRequest request = plan_request(Config::parse(text, path, overrides_with(opened, sets)));
  request.open = opened.open;
  return request;
}

Config configured(const std::string& path, const std::vector<std::string>& sets,
                  const std::vector<std::string>& layout) {
  const std::string text = read_text(path);
  std::vector<std::string> overrides = overrides_with(open_keys(parse_yaml(text, path), sets), sets);
  overrides.insert(overrides.end(), layout.begin(), layout.end());
  return Config::parse(text, path, overrides);
}

Layout with_data(const PlanRequest& request, int data) {
  Config config = request.config;
  config.parallel.data = data;
  return stated_layout(config);
}

}  // namespace gantry::planner

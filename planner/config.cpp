// Open keys, and requests of plans from configurations.
#include "gantry/planner/config.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <iterator>
#include <string_view>
#include <yaml-cpp/yaml.h>

#include "gantry/core/config/schedule_choice.h"
#include "gantry/core/config/schedule_names.h"
#include "gantry/core/error.h"
#include "gantry/core/io/readable_file.h"
#include "gantry/core/io/yaml_document.h"
#include "gantry/core/mesh.h"
#include "gantry/planner/workload.h"

namespace gantry::planner {
namespace {

struct PlannableKey {
  const char* path;
  const char* fallback;  // the value until the plan is made
  bool open_if_absent = true;
  bool has_own_auto = false;  // the runtime resolves auto without a plan
};

constexpr PlannableKey kKeys[] = {{"parallel.tensor", "1"},
                                  {"parallel.pipeline", "1"},
                                  {"parallel.data", "auto", true, true},
                                  {"parallel.context", "1", false},
                                  {"parallel.expert", "1", false},
                                  {"parallel.zero", "0"},
                                  {"parallel.shard", "auto", true, true},
                                  {"parallel.gather", "auto", true, true},
                                  {"parallel.sequence_parallel", "false"},
                                  {"parallel.vocabulary", "stages", false, true},
                                  {"schedule.name", "1f1b"},
                                  {"schedule.chunks", "1"},
                                  {"schedule.microbatch_size", "1"},
                                  {"schedule.recompute", "none"},
                                  {"schedule.layers", "default", false}};

constexpr const char* kSections[] = {"parallel", "schedule"};  // sections that can be auto

// The keys of a configuration that a plan chooses.
struct OpenKeys {
  std::set<std::string> open;          // a subset of plannable_keys()
  std::set<std::string> asked;         // keys of `open` that are auto
  std::vector<std::string> overrides;  // placeholders for keys that are auto
};

// The scalar at "section.key", or "" if the key is not set.
std::string scalar_at(const YAML::Node& document, const std::string& path, bool& present) {
  const auto dot = path.find('.');
  const YAML::Node& root = document;
  present = false;
  if (!root.IsMap()) return "";
  const YAML::Node section = root[path.substr(0, dot)];
  if (!section.IsDefined()) return "";
  if (section.IsScalar()) return section.Scalar();  // parallel: auto
  if (!section.IsMap()) return "";
  const YAML::Node& keys = section;
  const YAML::Node value = keys[path.substr(dot + 1)];
  if (!value.IsDefined()) return "";
  present = true;
  return value.IsScalar() ? value.Scalar() : "";
}

// Whether the file or an override sets the key.
bool is_stated(const YAML::Node& document, const std::vector<std::string>& sets, const std::string& path) {
  bool present = false;
  scalar_at(document, path, present);
  return present || std::ranges::any_of(sets, [&](const auto& set) { return set.starts_with(path + "="); });
}

// Whether a section is auto; the last override of the section decides.
bool is_auto_section(const YAML::Node& document, const std::vector<std::string>& sets, const std::string& section) {
  bool present = false;
  std::string value = scalar_at(document, section + ".x", present);
  for (const auto& set : sets)
    if (set.starts_with(section + "=")) value = set.substr(section.size() + 1);
  return value == "auto";
}

// For a file's document and the overrides of the command line. `absent_too`: keys that are not set are open as well.
OpenKeys open_keys(const YAML::Node& document, const std::vector<std::string>& sets, bool absent_too = true) {
  OpenKeys opened;
  for (const char* section : kSections)
    if (is_auto_section(document, sets, section)) opened.overrides.push_back(std::string(section) + "={}");
  const bool counts_microbatches = is_stated(document, sets, "schedule.microbatches");
  const bool limits_memory = is_stated(document, sets, "schedule.memory_limit");
  for (const auto& [path, fallback, open_if_absent, has_own_auto] : kKeys) {
    bool stated = false;
    std::string value = scalar_at(document, path, stated);
    if (is_auto_section(document, sets, std::string(path).substr(0, std::string(path).find('.')))) value = "auto";
    for (const auto& set : sets)
      if (set.starts_with(path + std::string("="))) value = set.substr(std::string(path).size() + 1), stated = true;
    const bool is_auto = value == "auto" && (stated || open_if_absent);
    const bool follows = path == std::string("schedule.microbatch_size");
    if (!is_auto && (stated || !open_if_absent || !(absent_too || follows))) continue;
    if (follows && counts_microbatches) continue;
    opened.open.insert(path);
    if (path == std::string("schedule.recompute") && limits_memory) continue;  // the memory limit then resolves auto
    if (is_auto) opened.asked.insert(path);
    if (is_auto && stated) opened.overrides.push_back(fmt::format("{}={}", path, fallback));
  }
  return opened;
}

// The placeholders of open keys, then the overrides that are not auto.
std::vector<std::string> overrides_with(const OpenKeys& opened, const std::vector<std::string>& sets) {
  std::vector<std::string> overrides = opened.overrides;
  for (const auto& set : sets) {
    const std::string key = set.substr(0, set.find('='));
    const bool opens = opened.open.contains(key) || std::ranges::find(kSections, key) != std::end(kSections);
    if (!set.ends_with("=auto") || !opens) overrides.push_back(set);
  }
  return overrides;
}

// Whether one of these keys needs a plan to resolve auto.
bool need_plan(const std::set<std::string>& asked) {
  return std::ranges::any_of(kKeys,
                             [&](const PlannableKey& key) { return asked.contains(key.path) && !key.has_own_auto; });
}

std::string read_text(const std::string& path) {
  std::ifstream file = open_for_reading(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) throw ConfigError({path, "the file cannot be read", "a configuration file", "check the path"});
  return text;
}

void refuse_unknown(const Config& config) {
  if (is_schedule_file(config.schedule.name))
    throw ConfigError(
        {"schedule.name",
         "the file " + config.schedule.name + " cannot be used, because a plan tries schedules of many sizes",
         "the name of a schedule", "set the name of a built-in schedule"});
  if (const auto run = measured_run(config.schedule))
    throw ConfigError({"schedule.layers", "the times of " + *run + " cannot be used, because a plan uses its own times",
                       "balanced", "remove the directory from the value"});
  if (!config.schedule.recompute_layers.empty())
    throw ConfigError({"schedule.recompute_layers",
                       "the key is set, but a plan recomputes either all layers of a stage or none", "",
                       "remove the key"});
  if (config.schedule.memory_limit > 0)
    throw ConfigError(
        {"schedule.memory_limit", "the key is set, but a plan uses the memory of the cluster", "", "remove the key"});
  if (config.train.offload != "none")
    throw ConfigError({"train.offload",
                       config.train.offload + " is not supported, because a plan only counts device memory", "none",
                       "remove the key"});
  std::vector<std::string> order = config.parallel.order;
  std::erase(order, axis::kContext);
  if (order != ParallelConfig{}.order)
    throw ConfigError({"parallel.order",
                       fmt::format("the order [{}] is not supported by a plan", fmt::join(config.parallel.order, ", ")),
                       fmt::format("[{}]", fmt::join(ParallelConfig{}.order, ", ")), "remove the key"});
  if (config.data.format.empty())
    throw ConfigError(
        {"data", "the section is missing", "data.sequence_length and data.batch_size", "add the section"});
}

}  // namespace

const std::vector<std::string>& plannable_keys() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> paths;
    for (const PlannableKey& key : kKeys) paths.emplace_back(key.path);
    return paths;
  }();
  return all;
}

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

std::vector<std::string> stated_libraries(const std::string& path, const std::vector<std::string>& sets) {
  YAML::Node document = parse_yaml(read_text(path), path);
  YAML::Node libraries = document.IsMap() ? document["libraries"] : YAML::Node();
  constexpr std::string_view kOverride = "libraries=";
  for (const auto& set : sets)
    if (set.starts_with(kOverride)) libraries = parse_yaml(set.substr(kOverride.size()), "--set libraries");
  std::vector<std::string> names;
  if (libraries.IsSequence())
    for (const auto& each : libraries)
      if (each.IsScalar()) names.push_back(each.Scalar());
  return names;
}

Layout with_data(const PlanRequest& request, int data) {
  Config config = request.config;
  config.parallel.data = data;
  return stated_layout(config);
}

}  // namespace gantry::planner

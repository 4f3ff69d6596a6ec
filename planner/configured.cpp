#include "gantry/planner/configured.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/mesh.h"
#include "gantry/core/schedule_choice.h"
#include "gantry/core/schedule_names.h"
#include "gantry/core/yaml_document.h"
#include "gantry/core/zero_level.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/planner/stated_layout.h"
#include "gantry/planner/trained_part.h"
#include "gantry/schedule/configured_schedule.h"

namespace gantry::planner {
namespace {

struct PlannableKey {
  const char* path;
  const char* fallback;  // while the plan is open
  bool open_if_absent = true;
  bool has_own_auto = false;  // which needs no plan
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

constexpr const char* kSections[] = {"parallel", "schedule"};  // that may be auto as a whole

// The scalar at "section.key", or "" where there is none.
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

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) throw ConfigError({path, "can't be read", "a configuration file", "check the path"});
  return text;
}

// Which keys are open, and the overrides that give those a value meanwhile.
struct Opened {
  std::set<std::string> open, asked;  // those of them that say auto
  std::vector<std::string> overrides;
};

// Whether a section is auto as a whole, by the last that says anything of it.
bool is_auto_section(const YAML::Node& document, const std::vector<std::string>& sets, const std::string& section) {
  bool present = false;
  std::string value = scalar_at(document, section + ".x", present);
  for (const auto& set : sets)
    if (set.starts_with(section + "=")) value = set.substr(section.size() + 1);
  return value == "auto";
}

Opened open_keys(const YAML::Node& document, const std::vector<std::string>& sets, bool absent_too = true) {
  Opened opened;
  for (const char* section : kSections)
    if (is_auto_section(document, sets, section)) opened.overrides.push_back(std::string(section) + "={}");
  bool present = false;
  scalar_at(document, "schedule.microbatches", present);
  const bool counts_microbatches =
      present || std::ranges::any_of(sets, [](const auto& set) { return set.starts_with("schedule.microbatches="); });
  bool limits_memory = false;
  scalar_at(document, "schedule.memory_limit", limits_memory);
  limits_memory = limits_memory ||
                  std::ranges::any_of(sets, [](const auto& set) { return set.starts_with("schedule.memory_limit="); });
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
    if (path == std::string("schedule.recompute") && limits_memory) continue;  // auto is then the limit's
    if (is_auto) opened.asked.insert(path);
    if (is_auto && stated) opened.overrides.push_back(fmt::format("{}={}", path, fallback));
  }
  return opened;
}

// What opens keys, then what is set; auto itself is no value of most.
std::vector<std::string> overrides_with(const Opened& opened, const std::vector<std::string>& sets) {
  std::vector<std::string> overrides = opened.overrides;
  for (const auto& set : sets) {
    const std::string key = set.substr(0, set.find('='));
    const bool opens = opened.open.contains(key) || std::ranges::find(kSections, key) != std::end(kSections);
    if (!set.ends_with("=auto") || !opens) overrides.push_back(set);
  }
  return overrides;
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

Recompute recompute_of(const std::string& name) {
  for (const Recompute each : {Recompute::kSelective, Recompute::kParts, Recompute::kFull})
    if (name_of(each) == name) return each;
  return Recompute::kNone;
}

// As the runtime takes parallel.vocabulary: auto by its rule.
bool shares_vocabulary(const Config& config, const std::vector<int>& layers) {
  if (config.parallel.vocabulary == "stages" || config.parallel.pipeline == 1) return false;
  if (config.parallel.vocabulary == "pipeline") return true;
  return ScheduleSource(config.schedule, config.parallel.pipeline)
      .gains_by_vocabulary(models::layer_work_of(stated_model(config)), layers);
}

}  // namespace

models::DecoderSpec stated_model(const Config& config) {
  config.require_model();
  const nlohmann::json keys = models::keys_of_model(config.model);
  const nlohmann::json type = keys.is_object() ? keys.value("model_type", nlohmann::json()) : nlohmann::json();
  const std::string family =
      config.model.policy.empty() && type.is_string() ? type.get<std::string>() : config.model.policy;
  return models::decoder_spec(family, keys);
}

Workload stated_workload(const Config& config) {
  models::DecoderSpec model = stated_model(config);
  TrainedPart trained = trained_part(config, model);
  return {.model = std::move(model),
          .sequence = config.data.sequence_length,
          .batch = config.data.batch_size,
          .precision = config.precision,
          .program = gantry_program(config.precision, config.optimizer.name),
          .trained = std::move(trained)};
}

Layout stated_layout(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  Layout layout{.tensor = parallel.tensor,
                .pipeline = parallel.pipeline,
                .data = parallel.data,
                .context = parallel.context,
                .expert = parallel.expert,
                .context_method = parallel.context_method,
                .ulysses = parallel.ulysses,
                .sequence_parallel = parallel.sequence_parallel,
                .zero = parallel.zero,
                .shard = parallel.shard,
                .gather = parallel.gather,
                .schedule = config.schedule.name,
                .chunks = chunks_of(config.schedule),
                .recompute = recompute_of(config.schedule.recompute)};
  const auto replicas = std::max(1, layout.data);
  const auto samples = (config.data.batch_size + replicas - 1) / replicas;
  const int count = microbatch_count(config.schedule, layout.pipeline * layout.chunks, samples);
  layout.microbatch = config.schedule.microbatch_size.value_or((samples + count - 1) / std::max(1, count));
  if (!config.schedule.microbatch_size) layout.microbatches = count;
  if (const auto* list = std::get_if<std::vector<int>>(&config.schedule.layers))
    layout.layers = *list;
  else if (const auto& name = std::get<std::string>(config.schedule.layers); is_balanced(config.schedule))
    layout.balanced = true;
  else if (name != "default")
    layout.layers = layers_per_stage(config.schedule, {}, {});
  layout.vocabulary_algorithm = config.schedule.vocabulary_algorithm;
  layout.shares_vocabulary = shares_vocabulary(config, layout.layers);
  return layout;
}

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
  Opened opened;
  if (!only_stated) opened = open_keys(parse_yaml(text, path), sets);
  PlanRequest request = plan_request(Config::parse(text, path, overrides_with(opened, sets)));
  request.open = opened.open;
  return request;
}

std::set<std::string> auto_keys(const std::string& path, const std::vector<std::string>& sets) {
  std::set<std::string> asked = open_keys(parse_yaml(read_text(path), path), sets, /*absent_too=*/false).asked;
  const bool needs_plan = std::ranges::any_of(
      kKeys, [&](const PlannableKey& key) { return asked.contains(key.path) && !key.has_own_auto; });
  return needs_plan ? asked : std::set<std::string>{};
}

PlanRequest read_auto_request(const std::string& path, const std::vector<std::string>& sets) {
  const std::string text = read_text(path);
  const Opened opened = open_keys(parse_yaml(text, path), sets, /*absent_too=*/false);
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

std::string name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::kSelective:
      return "selective";
    case Recompute::kParts:
      return "parts";
    case Recompute::kFull:
      return "full";
    default:
      return "none";
  }
}

std::vector<std::string> overrides_of(const Layout& layout) {
  std::vector<std::string> keys = {fmt::format("parallel.tensor={}", layout.tensor),
                                   fmt::format("parallel.pipeline={}", layout.pipeline),
                                   fmt::format("parallel.data={}", layout.data)};
  if (layout.context > 1) keys.push_back(fmt::format("parallel.context={}", layout.context));
  if (layout.expert > 1) keys.push_back(fmt::format("parallel.expert={}", layout.expert));
  keys.push_back(fmt::format("parallel.sequence_parallel={}", layout.sequence_parallel));
  keys.push_back(fmt::format("parallel.zero={}", layout.zero));
  if (layout.shard > 0) keys.push_back(fmt::format("parallel.shard={}", layout.shard));
  if (layout.zero == kHighestZero && layout.gather != "auto") keys.push_back("parallel.gather=" + layout.gather);
  keys.push_back("schedule.name=" + layout.schedule);
  keys.push_back(fmt::format("schedule.chunks={}", layout.chunks));
  if (layout.microbatches == 0) keys.push_back(fmt::format("schedule.microbatch_size={}", layout.microbatch));
  if (layout.shares_vocabulary) keys.push_back("parallel.vocabulary=pipeline");
  if (layout.balanced) keys.push_back("schedule.layers=balanced");
  keys.push_back("schedule.recompute=" + name_of(layout.recompute));
  return keys;
}

std::string describe(const Layout& layout) {
  std::string text = fmt::format("tensor {}, pipeline {}, data {}", layout.tensor, layout.pipeline, layout.data);
  if (layout.context > 1) text += fmt::format(", context {}", layout.context);
  if (layout.expert > 1) text += fmt::format(", expert {}", layout.expert);
  if (layout.sequence_parallel) text += ", sequence parallel";
  if (layout.pipeline > 1) text += ", " + layout.schedule;
  if (layout.chunks > 1) text += fmt::format(" x{}", layout.chunks);
  if (layout.balanced) text += ", layers balanced";
  if (layout.shares_vocabulary) text += ", vocabulary over the pipeline";
  text += fmt::format(", microbatch {}, zero {}", layout.microbatch, layout.zero);
  if (layout.shard > 0) text += fmt::format(" over {}", layout.shard);
  if (layout.zero == kHighestZero && layout.gather != "auto") text += ", gather by " + layout.gather;
  if (layout.recompute != Recompute::kNone) text += ", recompute " + name_of(layout.recompute);
  return text;
}

}  // namespace gantry::planner

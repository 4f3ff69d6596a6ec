#include "gantry/planner/open_keys.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>

#include "gantry/planner/configured.h"

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

// By the file or an override.
bool is_stated(const YAML::Node& document, const std::vector<std::string>& sets, const std::string& path) {
  bool present = false;
  scalar_at(document, path, present);
  return present || std::ranges::any_of(sets, [&](const auto& set) { return set.starts_with(path + "="); });
}

// Whether a section is auto as a whole, by the last that says anything of it.
bool is_auto_section(const YAML::Node& document, const std::vector<std::string>& sets, const std::string& section) {
  bool present = false;
  std::string value = scalar_at(document, section + ".x", present);
  for (const auto& set : sets)
    if (set.starts_with(section + "=")) value = set.substr(section.size() + 1);
  return value == "auto";
}

}  // namespace

OpenKeys open_keys(const YAML::Node& document, const std::vector<std::string>& sets, bool absent_too) {
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
    if (path == std::string("schedule.recompute") && limits_memory) continue;  // auto is then the limit's
    if (is_auto) opened.asked.insert(path);
    if (is_auto && stated) opened.overrides.push_back(fmt::format("{}={}", path, fallback));
  }
  return opened;
}

std::vector<std::string> overrides_with(const OpenKeys& opened, const std::vector<std::string>& sets) {
  std::vector<std::string> overrides = opened.overrides;
  for (const auto& set : sets) {
    const std::string key = set.substr(0, set.find('='));
    const bool opens = opened.open.contains(key) || std::ranges::find(kSections, key) != std::end(kSections);
    if (!set.ends_with("=auto") || !opens) overrides.push_back(set);
  }
  return overrides;
}

bool need_plan(const std::set<std::string>& asked) {
  return std::ranges::any_of(kKeys,
                             [&](const PlannableKey& key) { return asked.contains(key.path) && !key.has_own_auto; });
}

const std::vector<std::string>& plannable_keys() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> paths;
    for (const PlannableKey& key : kKeys) paths.emplace_back(key.path);
    return paths;
  }();
  return all;
}

}  // namespace gantry::planner

#include "gantry/policies/apply_plan.h"

#include <fmt/format.h>

namespace gantry {
namespace {

Placements shard_one(const std::string& path, torch::nn::Module& module, const ShardStyle& style, ProcessGroup& group) {
  auto* shardable = dynamic_cast<Shardable*>(&module);
  if (!shardable) {
    throw ConfigError(
        {path, "is a " + module.name() + ", which can't be split as " + describe(style), "a Shardable module",
         "use gantry::nn::Linear or gantry::nn::Embedding there, or derive your module from gantry::Shardable"});
  }
  try {
    return shardable->shard(style, group);
  } catch (const ConfigError& error) {
    throw ConfigError(
        {path, fmt::format("can't be split as {} over {} ranks: {}", describe(style), group.size(), error.what()), "",
         ""});
  }
}

// Which rule is for which module; each module at most once.
std::map<std::string, const ShardRule*> match_rules(const ModelMap& map, const ShardPlan& plan) {
  std::map<std::string, const ShardRule*> rule_of;
  for (const auto& rule : plan) {
    bool used = false;
    for (const auto& [path, module] : map.modules) {
      if (!matches_path(rule.pattern, path)) continue;
      used = true;
      if (!rule_of.emplace(path, &rule).second) {
        throw ConfigError({path, "is named by two rules, '" + rule_of[path]->pattern + "' and '" + rule.pattern + "'",
                           "one rule for a module", "take one of them out of the shard plan"});
      }
    }
    if (!used) {
      const std::string near = nearest_name(rule.pattern, map.module_names());
      throw ConfigError({"shard plan", "the rule '" + rule.pattern + "' matches no module",
                         "a module's path, * for one part of it",
                         near.empty() ? "check the names of the model's modules" : "did you mean '" + near + "'?"});
    }
  }
  return rule_of;
}

}  // namespace

std::map<std::string, AxisPlacement> apply_plan(const ModelMap& map, const ShardPlan& plan, ProcessGroup& group) {
  const auto rule_of = match_rules(map, plan);
  std::map<std::string, AxisPlacement> placements;
  for (const auto& [path, module] : map.modules) {
    const auto rule = rule_of.find(path);
    if (rule == rule_of.end()) continue;
    for (const auto& [name, placement] : shard_one(path, *module, rule->second->style, group))
      placements[path + "." + name] = placement;
  }
  return placements;
}

}  // namespace gantry

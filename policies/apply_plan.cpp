#include "gantry/policies/apply_plan.h"

#include <algorithm>
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
    shardable->claim();
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

bool is_ruled(const std::string& path, const ShardPlan& plan) {
  return std::any_of(plan.begin(), plan.end(), [&](const ShardRule& rule) { return matches_path(rule.pattern, path); });
}

// See resolve_plan.
ShardStyle resolved_style(ShardStyle style, bool sequence_parallel, GradientSum sum) {
  const Layout border = sequence_parallel ? Layout(Shard{1}) : Layout(Replicate{});
  if (auto* column = std::get_if<Column>(&style)) {
    if (!column->input) column->input = border;
    column->gradient_sum = sum;
  } else if (auto* row = std::get_if<Row>(&style)) {
    if (!row->output) row->output = border;
    row->gradient_sum = sum;
  } else if (auto* vocab = std::get_if<Vocab>(&style)) {
    if (!vocab->output) vocab->output = border;
  } else if (auto* sequence = std::get_if<SequenceParallel>(&style)) {
    sequence->gradient_sum = sum;
  }
  return style;
}

bool needs_sequence_parallelism(const ShardStyle& style) {
  return std::holds_alternative<SequenceParallel>(style) || std::holds_alternative<Whole>(style) ||
         std::holds_alternative<PrepareInput>(style);
}

}  // namespace

ShardPlan resolve_plan(const ShardPlan& plan, const ModelMap& map, bool sequence_parallel, GradientSum sum) {
  ShardPlan whole;
  for (const auto& [pattern, style] : plan)
    if (sequence_parallel || !needs_sequence_parallelism(style))
      whole.push_back({pattern, resolved_style(style, sequence_parallel, sum)});
  if (!sequence_parallel) return whole;
  for (const auto& [path, module] : map.modules) {
    const auto* shardable = dynamic_cast<const Shardable*>(module.get());
    if (shardable && shardable->follows_sequence() && !is_ruled(path, plan))
      whole.push_back({path, resolved_style(SequenceParallel{}, true, sum)});
  }
  return whole;
}

void add_unruled(const ModelMap& map, const ShardPlan& plan, std::map<std::string, AxisPlacement>& placements) {
  for (const auto& parameter : map.parameters)
    for (const auto& name : parameter.names) {
      const std::string module = name.substr(0, name.rfind('.'));
      if (name.find('.') == std::string::npos || is_ruled(module, plan)) continue;
      placements.emplace(name, replicated_on_shards(GradientSum::kAtSync));
    }
}

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

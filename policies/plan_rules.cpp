#include "gantry/policies/plan_rules.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/base/wildcard.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

std::string path_above(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

// Returns "h.*.norm" for "h.3.norm": one rule covers all layers.
std::string with_layers_as_stars(const std::string& path) {
  std::string pattern;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    pattern += (begin > 0 ? "." : "") + (is_number ? std::string("*") : part);
    begin = end + 1;
  }
  return pattern;
}

bool is_shard(const std::optional<Layout>& layout) { return layout && std::holds_alternative<Shard>(*layout); }

// True if a plan with sequence shards must have a rule for the module. Modules without parameters need none,
// unless they are Shardable and state that they depend on the sequence.
bool depends_on_sequence(const torch::nn::Module& module) {
  const auto* shardable = dynamic_cast<const Shardable*>(&module);
  return !module.named_parameters(/*recurse=*/false).is_empty() || (shardable && shardable->depends_on_sequence());
}

}  // namespace

bool is_about_sequence(const ShardStyle& style) {
  return std::holds_alternative<SequenceParallel>(style) || std::holds_alternative<FullSequence>(style);
}

bool shards_activations(const ShardPlan& plan) {
  return std::any_of(plan.begin(), plan.end(), [](const ShardRule& rule) {
    if (const auto* column = std::get_if<Column>(&rule.style)) return is_shard(column->input);
    if (const auto* row = std::get_if<Row>(&rule.style)) return is_shard(row->output);
    if (const auto* vocab = std::get_if<Vocab>(&rule.style)) return is_shard(vocab->output);
    if (const auto* expert = std::get_if<Expert>(&rule.style)) return is_shard(expert->border);
    if (const auto* prepare = std::get_if<PrepareInput>(&rule.style))
      return is_shard(prepare->from) || is_shard(prepare->to);
    return std::holds_alternative<SequenceParallel>(rule.style);
  });
}

PlanRules::PlanRules(const ModelMap& map, const ShardPlan& plan) : map_(map) {
  for (const auto& [path, module] : map.modules) modules_[path] = module.get();
  for (const auto& rule : plan) {
    const std::size_t before = rules_.size();
    for (const auto& [path, module] : map.modules)
      if (matches_pattern(rule.pattern, path, Star::kOnePart)) add(path, rule);
    // A parameter must be named without a "*" at the end, which stands for modules.
    for (const auto& [tensor, names] : map.parameters)
      for (const auto& name : names)
        if (!rule.pattern.ends_with('*') && matches_pattern(rule.pattern, name, Star::kOnePart))
          add_parameter(name, rule);
    if (rules_.size() > before) continue;
    const std::string near = nearest_name(rule.pattern, map.module_names());
    throw ConfigError({"shard plan", "the rule '" + rule.pattern + "' matches no module",
                       "the path of a module, with * for any one part of it",
                       near.empty() ? "check the names of the model's modules" : "did you mean '" + near + "'?"});
  }
}

void PlanRules::add(const std::string& path, const ShardRule& rule) {
  if (!rules_.emplace(path, &rule).second)
    throw ConfigError({path, "two rules match it, '" + rules_[path]->pattern + "' and '" + rule.pattern + "'",
                       "one rule for each module", "remove one of them from the shard plan"});
}

void PlanRules::add_parameter(const std::string& name, const ShardRule& rule) {
  if (!is_about_sequence(rule.style))
    throw ConfigError({name, "a parameter cannot be sharded as " + describe(rule.style),
                       "FullSequence{} or SequenceParallel{} for a parameter", "name the module that holds it"});
  if (shardable(path_above(name)))
    throw ConfigError({name, "the module of this parameter determines its sharding itself", "a rule for the module",
                       "name '" + path_above(name) + "' instead"});
  add(name, rule);
}

const Shardable* PlanRules::shardable(const std::string& path) const {
  const auto found = modules_.find(path);
  return found == modules_.end() ? nullptr : dynamic_cast<const Shardable*>(found->second);
}

const ShardRule* PlanRules::naming(const std::string& path) const {
  const auto found = rules_.find(path);
  return found == rules_.end() ? nullptr : found->second;
}

const ShardRule* PlanRules::speaking_for(std::string path) const {
  for (; !path.empty(); path = path_above(path))
    if (const ShardRule* rule = naming(path)) return rule;
  return nullptr;
}

// True for a Shardable module that a rule can apply to. One without parameters may only contain others.
bool PlanRules::speaks_for_itself(const std::string& path) const {
  return shardable(path) && (naming(path) || depends_on_sequence(*modules_.at(path)));
}

bool PlanRules::is_in_shardable(const std::string& path) const {
  for (std::string around = path_above(path); !around.empty(); around = path_above(around)) {
    if (speaks_for_itself(around)) return true;
    if (naming(around)) return false;
  }
  return false;
}

const ShardStyle* PlanRules::style_of(const std::string& path) const {
  if (const ShardRule* rule = naming(path)) return &rule->style;
  if (!speaks_for_itself(path) || is_in_shardable(path)) return nullptr;
  const ShardRule* rule = speaking_for(path);
  return rule ? &rule->style : nullptr;
}

// True if a rule covers the path, or if a module around it was sharded by an earlier plan.
bool PlanRules::is_stated(const std::string& path) const {
  if (speaking_for(path)) return true;
  for (std::string around = path; !around.empty(); around = path_above(around))
    if (const Shardable* module = shardable(around); module && module->is_claimed()) return true;
  return false;
}

std::vector<std::string> PlanRules::unstated() const {
  std::vector<std::string> paths;
  const auto add_once = [&](const std::string& path) {
    const std::string pattern = with_layers_as_stars(path);
    if (std::find(paths.begin(), paths.end(), pattern) == paths.end()) paths.push_back(pattern);
  };
  for (const auto& [tensor, names] : map_.parameters)
    for (const auto& name : names)
      if (!is_stated(name)) add_once(path_above(name).empty() ? name : path_above(name));
  for (const auto& [path, module] : map_.modules)
    if (depends_on_sequence(*module) && module->parameters(/*recurse=*/false).empty() && !is_stated(path))
      add_once(path);
  return paths;
}

}  // namespace gantry

// Assigns the rules of a shard plan to the modules and parameters of a model.
#pragma once

#include <map>
#include <string>

#include "gantry/policies/model_map.h"
#include "gantry/policies/policy.h"

namespace gantry {

// True for FullSequence{} and SequenceParallel{}, which state the part of the sequence that a module sees.
// Only these can be set for any module and parameter. For a module that is not Shardable, they apply to
// everything below it that has no rule of its own.
bool is_about_sequence(const ShardStyle& style);
// True if a rule makes activations sequence shards.
bool shards_activations(const ShardPlan& plan);

class PlanRules {
 public:
  // Both arguments must outlive this object. Throws ConfigError if a rule matches nothing, or if two rules
  // name the same module or parameter.
  PlanRules(const ModelMap& map, const ShardPlan& plan);

  // The rule that names this path itself; null if none does.
  const ShardRule* naming(const std::string& path) const;
  // The rule for a module or parameter: the rule that names it, or that names the nearest module around it.
  // Null: none.
  const ShardRule* speaking_for(std::string path) const;
  // The style by which a module is to be sharded, from the rule that names it or a module around it. Null:
  // there is no rule, or a Shardable module around it determines the placement of its parameters.
  const ShardStyle* style_of(const std::string& path) const;
  // True if a Shardable module around this path determines its placement, and is nearer than any rule for a
  // module that is not Shardable.
  bool is_in_shardable(const std::string& path) const;

  // The paths without a rule, with "*" for the numbers of layers: parameters, and modules without parameters
  // that depend on the sequence.
  std::vector<std::string> unstated() const;

 private:
  void add(const std::string& path, const ShardRule& rule);
  void add_parameter(const std::string& name, const ShardRule& rule);
  const Shardable* shardable(const std::string& path) const;
  bool speaks_for_itself(const std::string& path) const;
  bool is_stated(const std::string& path) const;

  const ModelMap& map_;
  std::map<std::string, const torch::nn::Module*> modules_;
  std::map<std::string, const ShardRule*> rules_;  // by the path that they name
};

}  // namespace gantry

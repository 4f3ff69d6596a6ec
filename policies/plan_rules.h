// Which rule of a shard plan speaks for which module and parameter of a model.
#pragma once

#include <map>
#include <string>

#include "gantry/policies/model_map.h"
#include "gantry/policies/policy.h"

namespace gantry {

// FullSequence{} and SequenceParallel{}: what a module sees of the sequence. They alone may be stated for any module
// and parameter, and for a module that is not Shardable they go for all below it that no other rule names.
bool is_about_sequence(const ShardStyle& style);
// True where a rule makes activations sequence shards.
bool shards_activations(const ShardPlan& plan);

class PlanRules {
 public:
  // Both must outlive it. ConfigError for a rule that matches nothing, and for a module or parameter that two name.
  PlanRules(const ModelMap& map, const ShardPlan& plan);

  // The rule that names this path itself; null if none does.
  const ShardRule* naming(const std::string& path) const;
  // The rule that speaks for a module or parameter: the one that names it, or the nearest module around it. Null: none.
  const ShardRule* speaking_for(std::string path) const;
  // The style by which a module is to be split: of the rule that names it, or of the one that names a module around it.
  // Null: by none, or a Shardable module around it says how its parameters lie.
  const ShardStyle* style_of(const std::string& path) const;
  // True if a Shardable module around this path says how it lies, nearer than any rule for a module that is not.
  bool is_in_shardable(const std::string& path) const;

  // Parameters, and modules that depend on the sequence without any, that no rule speaks for: paths, layers as "*".
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

#include "gantry/nn/shard_style.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

void Shardable::claim() {
  if (claimed_) throw ConfigError({"", "the module has already been sharded", "", "build a new model for each split"});
  claimed_ = true;
}

void refuse_style(const char* module, const ShardStyle& style, const char* expected) {
  throw ConfigError({"", fmt::format("{} cannot be sharded as {}", module, describe(style)), expected, ""});
}

Placements split_parameters(const std::map<std::string, Shape>& shapes, const ShardStyle& style,
                            const ShardAxes& axes) {
  Placements placements;
  for (const auto& [name, shape] : shapes)
    if (auto split = split_of(style, shape, axes.axes()); split != ParameterSplit())
      placements[name] = std::move(split);
  return placements;
}

ShardSpec shard_of(const Placements& placements, const std::string& name) {
  const auto found = placements.find(name);
  return found == placements.end() || found->second.shards.empty() ? replicate() : found->second.shards.front();
}

void shard_parameters(torch::nn::Module& module, const Placements& placements, const ShardAxes& axes) {
  for (auto& item : module.named_parameters(/*recurse=*/false))
    if (const auto split = placements.find(item.key()); split != placements.end())
      for (const ShardSpec& shard : split->second.shards) shard_tensor(item.value(), shard, axes.rank());
}

void set_global_names(torch::nn::Module& root) {
  for (const auto& item : root.named_modules("", /*include_self=*/false))
    if (auto* named = dynamic_cast<Named*>(item.value().get())) named->set_global_name(item.key());
}

}  // namespace gantry

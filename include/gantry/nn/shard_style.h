// The interface for sharding a module by the style of a rule (core/shard_style.h).
#pragma once

#include <string>

#include <torch/nn/modules/normalization.h>

#include "gantry/core/placement.h"
#include "gantry/core/shard_style.h"
#include "gantry/nn/layout.h"
#include "gantry/nn/shard_axes.h"

namespace gantry {

// A module that can be sharded over mesh axes in place. Derive your own modules from it to make them shardable.
class Shardable {
 public:
  virtual ~Shardable() = default;

  // Keeps this rank's part of the parameters, with shard_tensor(). From then on the module communicates over
  // axes.group(), which must outlive it. Returns for each parameter the axes that shard it (ShardAxes::over), and the
  // axes along which its gradient is a partial sum. Called once. Not collective. Throws ConfigError (with sizes; the
  // caller adds the path) if the style does not fit the module or the sizes.
  virtual Placements shard(const ShardStyle& style, const ShardAxes& axes) = 0;

  // True if the module's computation depends on its part of the sequence even without parameters (the mask of a
  // dropout). If activations are sequence shards, a rule must then cover it, as for modules with parameters.
  virtual bool depends_on_sequence() const { return false; }

  // Marks the module as sharded. The code that applies a plan calls it. Throws ConfigError at the second call.
  void claim();
  bool is_claimed() const { return claimed_; }

 private:
  bool claimed_ = false;
};

// Throws the ConfigError for an unsupported style: "a Linear can't be split as Vocab{}; expected Column{} or Row{}".
[[noreturn]] void refuse_style(const char* module, const ShardStyle& style, const char* expected);

// Helpers of shard(). split_parameters() returns how the style shards parameters with these global shapes, except those
// that it does not shard. cut_of() returns the first step of a parameter, or one that is not sharded. The function
// shard_parameters() shards the parameters.
Placements split_parameters(const std::map<std::string, Shape>& shapes, const ShardStyle& style, const ShardAxes& axes);
ShardSpec shard_of(const Placements& placements, const std::string& name);
void shard_parameters(torch::nn::Module& module, const Placements& placements, const ShardAxes& axes);

// A module whose random numbers depend on its position in the model.
class Named {
 public:
  virtual ~Named() = default;
  virtual void set_global_name(const std::string& name) = 0;
};

// Sets the global names of all Named modules below `root` to their paths.
void set_global_names(torch::nn::Module& root);

}  // namespace gantry

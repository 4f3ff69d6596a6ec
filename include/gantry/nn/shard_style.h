// The interface by which a module is split, by the style that a rule states (core/shard_style.h).
#pragma once

#include <string>

#include <torch/nn/modules/normalization.h>

#include "gantry/core/placement.h"
#include "gantry/core/shard_style.h"
#include "gantry/nn/layout.h"
#include "gantry/nn/shard_axes.h"

namespace gantry {

// A module that can be split over axes of the mesh in place. Users' own modules join in by deriving from it.
class Shardable {
 public:
  virtual ~Shardable() = default;

  // Keeps this rank's part of the parameters, by shard_tensor(), and from now on communicates over axes.group(), which
  // outlives the module. What it gives says of each parameter over which of the axes it is cut (ShardAxes::over), and
  // along which its gradient is a partial sum. Called once. Not collective. ConfigError (with sizes, without the path:
  // the caller adds it) if the style does not fit the module or the sizes.
  virtual Placements shard(const ShardStyle& style, const ShardAxes& axes) = 0;

  // True: what the module does depends on the part of the sequence that it sees, also without parameters (a dropout's
  // mask). Where activations are sequence shards a rule must then reach it, as every module with parameters.
  virtual bool depends_on_sequence() const { return false; }

  // Says, once, that the module is split from now on: called by who applies a plan. ConfigError the second time.
  void claim();
  bool is_claimed() const { return claimed_; }

 private:
  bool claimed_ = false;
};

// The ConfigError of a style that does not fit: "a Linear can't be split as Vocab{}; expected Column{} or Row{}".
[[noreturn]] void refuse_style(const char* module, const ShardStyle& style, const char* expected);

// What the style makes of each of a module's own parameters (split_of) over the axes, by their global shapes; the
// first cut of one of them, or one that cuts nothing; and the cutting.
Placements split_parameters(const std::map<std::string, Shape>& shapes, const ShardStyle& style, const ShardAxes& axes);
ShardSpec cut_of(const Placements& placements, const std::string& name);
void shard_parameters(torch::nn::Module& module, const Placements& placements, const ShardAxes& axes);

// A module whose random numbers depend on where it is in the model.
class Named {
 public:
  virtual ~Named() = default;
  virtual void set_global_name(const std::string& name) = 0;
};

// Sets the global names of every Named module below `root`, by their paths.
void set_global_names(torch::nn::Module& root);

}  // namespace gantry

// How a rule says a module is split over tp, and the interface by which a module is split.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include <torch/torch.h>

#include "gantry/comm/process_group.h"
#include "gantry/core/placement.h"

namespace gantry {

// A Linear split by output features (weight [out, in] and bias [out] along dim 0). Megatron-LM (arXiv 1909.08053).
struct Column {
  int segments = 1;            // equal parts of a fused projection (3 for query, key and value), each dealt on its own
  std::int64_t unit = 1;       // features that stay together (a head)
  bool gather_output = false;  // true: the output is the full one on all ranks
};

// A Linear split by input features (weight along dim 1); the bias is added once, after the sum.
struct Row {
  std::int64_t unit = 1;
  bool input_is_parallel = true;  // false: a full input is split by the layer
  bool reduce_output = true;      // false: the partial sum is returned, without bias
  bool skip_bias_add = false;     // true: the sum is returned without bias, for the caller to add
};

// An Embedding split by rows of its table.
struct Vocab {};

using ShardStyle = std::variant<Column, Row, Vocab>;
std::string describe(const ShardStyle& style);  // "Column{segments 3, unit 64}"

using Placements = std::map<std::string, AxisPlacement>;  // by the module's own parameter names; absent: replicated

// A module that can be split over tp in place. Users' own modules join in by deriving from it.
class Shardable {
 public:
  virtual ~Shardable() = default;

  // Keeps this rank's part of the parameters, by shard_tensor(), and from now on communicates over `group`, which
  // outlives the module. Called once. Not collective. ConfigError (with sizes, without the path: the caller adds it) if
  // the style does not fit the module or the sizes.
  virtual Placements shard(const ShardStyle& style, ProcessGroup& group) = 0;
};

// A module whose random numbers depend on where it is in the model.
class Named {
 public:
  virtual ~Named() = default;
  virtual void set_global_name(const std::string& name) = 0;
};

// Sets the global names of every Named module below `root`, by their paths.
void set_global_names(torch::nn::Module& root);

}  // namespace gantry

// How a rule says a module is split over tp, and the interface by which a module is split.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <torch/nn/modules/normalization.h>

#include "gantry/comm/process_group.h"
#include "gantry/core/placement.h"
#include "gantry/nn/layout.h"

namespace gantry {

// Where gradients that are partial sums over tp (of norms and biases on sequence shards, of key heads that ranks share)
// are summed. Set by who shards: a plain backward() must do after parallelize_module; a boosted model sums them once a
// step.
enum class GradientSum { kInBackward, kAtSync };

// A Linear split by output features (weight [out, in] and bias [out] along dim 0). Megatron-LM (arXiv 1909.08053).
struct Column {
  int segments = 1;       // equal parts of a fused projection (3 for query, key and value), each partitioned on its own
  std::int64_t unit = 1;  // features that stay together (a head)
  bool gather_output = false;  // true: the output is the full one on all ranks
  std::int64_t users = 0;      // a key or value projection: the query heads that use its `unit`s in equal groups
  std::vector<Part> parts;     // parts of unequal sizes; instead of segments, unit and users
  // Replicate{}, or Shard{dim}: the input is this rank's part along dim and is gathered. Unset: Replicate, or Shard{1}
  // under a policy with sequence parallelism.
  std::optional<Layout> input;
  GradientSum gradient_sum = GradientSum::kInBackward;
};

// A Linear split by input features (weight along dim 1); the bias is added once, after the sum.
struct Row {
  std::int64_t unit = 1;
  bool input_is_parallel = true;  // false: a full input is split by the layer
  bool reduce_output = true;      // false: the partial sum is returned, without bias
  bool skip_bias_add = false;     // true: the sum is returned without bias, for the caller to add
  // Replicate{}, or Shard{dim}: each rank gets its part of the sum along dim. Unset as of Column::input.
  std::optional<Layout> output;
  GradientSum gradient_sum = GradientSum::kInBackward;
};

// An Embedding split by rows of its table.
struct Vocab {
  std::optional<Layout> output;  // as of Row
};

// A module between the split ones, whole on every rank, that works on this rank's part of the activations along `dim`
// (norms, dropouts): its parameters' gradients are partial sums, which are summed over the group. Its input must be
// that part already: nothing is split here. An Embedding alone takes whole indices and looks up this rank's part of
// them. Korthikanti et al. (arXiv 2205.05198).
//
// This style and Whole{} may also be stated for a module that is not Shardable (torch::nn::LayerNorm), for one that
// holds others, where it goes for all below it that no other rule reaches, and for a parameter by its path.
struct SequenceParallel {
  int dim = 1;
  GradientSum gradient_sum = GradientSum::kInBackward;
};

// A module that works on this rank's heads (a norm of queries and keys): its parameters are whole on every rank, and
// their gradients are partial sums, with and without sequence parallelism.
struct OnHeads {
  GradientSum gradient_sum = GradientSum::kInBackward;
};

// A module that works on whole activations also where others work on sequence shards: before a scatter or after a
// gather. Its gradients are whole on every rank.
struct Whole {};

// For nn::PrepareInput: brings an activation from one layout to another.
struct PrepareInput {
  Layout from = Shard{1};
  Layout to = Replicate{};
};

using ShardStyle = std::variant<Column, Row, Vocab, SequenceParallel, OnHeads, Whole, PrepareInput>;
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

// A placement that replicates, with gradients that are partial sums where they are summed at the sync.
AxisPlacement replicated_on_shards(GradientSum sum);

// A module whose random numbers depend on where it is in the model.
class Named {
 public:
  virtual ~Named() = default;
  virtual void set_global_name(const std::string& name) = 0;
};

// Sets the global names of every Named module below `root`, by their paths.
void set_global_names(torch::nn::Module& root);

}  // namespace gantry

// How a rule of a policy shards a module over the ranks of a group, and the resulting placement of its parameters.
// Independent of LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gantry/core/layout.h"
#include "gantry/core/shard_spec.h"
#include "gantry/core/slice.h"

namespace gantry {

// When gradients that are partial sums over tp (of norms and biases on sequence shards, and of KV heads that ranks
// share) are reduced. kInBackward is for a plain backward() after parallelize_module(). A boosted model uses kAtSync:
// once per step.
enum class GradientSum { kInBackward, kAtSync };

// A Linear that is sharded by output features (dimension 0 of weight [out, in] and bias [out]). Megatron-LM (arXiv
// 1909.08053).
struct Column {
  int segments = 1;  // equal parts of a fused projection (3 for query, key and value), each partitioned independently
  std::int64_t unit = 1;       // number of features that must stay together (a head)
  bool gather_output = false;  // true: every rank gets the full output
  std::int64_t users = 0;   // for a key or value projection: number of query heads, which use its units in equal groups
  std::vector<Part> parts;  // parts of unequal size; replaces segments, unit and users
  // Number of groups. A group has query heads, one key head and one value head, of `unit` features each (shard_groups).
  std::int64_t groups = 0;
  // Number of blocks. A block has query heads, as many value heads and as many key heads (shard_blocks).
  std::int64_t blocks = 0;
  // Replicate{}: the input is full. Shard{dim}: it is this rank's part along dim and is gathered. Not set: Replicate,
  // or Shard{1} under a policy with sequence parallelism.
  std::optional<Layout> input;
  GradientSum gradient_sum = GradientSum::kInBackward;
};

// A Linear that is sharded by input features (dimension 1 of the weight). The bias is added once, after the reduction.
struct Row {
  std::int64_t unit = 1;
  bool input_is_parallel = true;  // false: the layer takes a full input and selects this rank's part
  bool reduce_output = true;      // false: returns the partial sum, without bias
  bool skip_bias_add = false;     // true: returns the sum without bias, for the caller to add
  // Replicate{}: every rank gets the full sum. Shard{dim}: each rank gets its part along dim. Not set: as in
  // Column::input.
  std::optional<Layout> output;
  GradientSum gradient_sum = GradientSum::kInBackward;
};

// An Embedding that is sharded by rows of its table.
struct Vocab {
  std::optional<Layout> output;  // as in Row
};

// A replicated module between sharded ones that processes this rank's part of the activations along `dim` (norms,
// dropout). Its parameter gradients are partial sums, which are reduced over the group. The input must already be the
// part: nothing is sharded here. Only an Embedding takes the full indices and looks up this rank's part of them.
// Korthikanti et al. (arXiv 2205.05198).
//
// SequenceParallel and FullSequence can also be set for a module that is not Shardable (torch::nn::LayerNorm) and for
// the path of a parameter. For a module with submodules, they apply to all submodules without a rule of their own.
struct SequenceParallel {
  int dim = 1;
  GradientSum gradient_sum = GradientSum::kInBackward;
};

// A module that processes this rank's heads (a norm of queries and keys). Its parameters are replicated, and their
// gradients are partial sums, with and without sequence parallelism.
struct OnHeads {
  GradientSum gradient_sum = GradientSum::kInBackward;
};

// How tokens reach experts on other ranks: each token is sent only to the ranks of its experts, or every rank gathers
// all tokens. The second one is slower and serves as a reference.
enum class ExpertDispatch { kAllToAll, kAllGather };

// Experts (nn::Experts). By default, each expert is sharded along its width over all ranks, and tokens have the layouts
// of activations between sharded modules. If `partitioned` (parallel.expert), the experts are distributed over the
// ranks of the expert view, each one complete on one rank, and every rank contributes its own tokens.
struct Expert {
  std::optional<Layout> border;  // layout of input and output: Replicate{} or Shard{1}. Not set: as in Column::input
  GradientSum gradient_sum = GradientSum::kInBackward;
  bool partitioned = false;  // set by the code that shards, from the mesh
  ExpertDispatch dispatch = ExpertDispatch::kAllToAll;
};

// A module that processes full activations even under sequence parallelism: before a scatter or after a gather. Its
// gradients are the full gradients on every rank.
struct FullSequence {};

// For nn::PrepareInput: converts an activation from one layout to another.
struct PrepareInput {
  Layout from = Shard{1};
  Layout to = Replicate{};
};

using ShardStyle = std::variant<Column, Row, Vocab, SequenceParallel, OnHeads, Expert, FullSequence, PrepareInput>;
std::string describe(const ShardStyle& style);  // "Column{segments 3, unit 64}"

// How a module has sharded one of its parameters over the given axes: the sharding steps in order, and the axes along
// which each rank has a summand of the gradient. All axes belong to `view`.
struct ParameterSplit {
  std::vector<ShardSpec> shards;
  std::vector<std::string> partial_axes;
  axis::View view = axis::View::kDense;

  ParameterSplit() = default;
  ParameterSplit(ShardSpec shard) {  // NOLINT(google-explicit-constructor): {{"weight", shard(0, size, ranks)}}
    if (shard.sharded()) shards.push_back(std::move(shard));
  }
  bool operator==(const ParameterSplit&) const = default;
};

using Placements = std::map<std::string, ParameterSplit>;  // by the module's own parameter names; absent: replicated

// The stacks of weights of experts: the projections of their input, and that of their output.
inline constexpr const char* kGateUpStack = "gate_up_proj";
inline constexpr const char* kUpStack = "up_proj";
inline constexpr const char* kDownStack = "down_proj";
inline constexpr const char* kExpertStacks[] = {kGateUpStack, kUpStack, kDownStack};

// The shape of the experts of one layer, each of which computes down(activation(gate(x)) * up(x)) or, if they have no
// gate, down(activation(up(x))).
struct ExpertShape {
  std::int64_t experts = 1, hidden = 1, width = 1;
  bool bias = false;
  bool interleaved = false;  // transposed, with alternating gate and up columns; requires a gate
  bool gated = true;
  bool transposed = false;       // gate_up_proj is [experts, hidden, 2 width], down_proj [experts, width, hidden]
  bool output_is_first = false;  // overrides the transposition: the order of the records of model.quantize mxfp4

  bool input_is_first() const { return (transposed || interleaved) && !output_is_first; }
  const char* input_stack() const { return gated ? kGateUpStack : kUpStack; }
  std::int64_t inner() const { return gated ? 2 * width : width; }  // outputs of the input stack for each expert
};
// Returns parameter names and shapes: gate_up_proj [experts, 2 width, hidden], with all gate rows before all up rows,
// and down_proj [experts, hidden, width]. With bias: gate_up_proj_bias [experts, 2 width] and down_proj_bias [experts,
// hidden]. Matrices may be transposed. Without a gate, up_proj [experts, width, hidden] and
// up_proj_bias [experts, width] replace those of gate_up_proj.
std::map<std::string, Shape> expert_parameters(const ExpertShape& shape);
// Returns how the outputs of the input stack, which are dimension `dim`, are sharded: gate and up of a feature
// together.
ShardSpec shard_inner(const ExpertShape& shape, int dim, int ranks);
// Returns how Expert{} shards these parameters. Throws ConfigError with the sizes if there are more ranks than columns
// of an expert or, if partitioned, more ranks than experts.
Placements split_of(const Expert& style, const ExpertShape& shape, const std::vector<Axis>& axes);

// Returns how a style shards a parameter of this shape over `axes`. Two dimensions: the weight of a matrix [out, in] or
// of a table [rows, columns]. One dimension: a bias or the parameter of a norm. Column{}
// shards more dimensions along the first one above 1: channels [channels, 1, taps], heads [1, 1, heads, 1]. Throws
// ConfigError with the sizes if the shape cannot be sharded.
ParameterSplit split_of(const ShardStyle& style, const Shape& shape, const std::vector<Axis>& axes);

}  // namespace gantry

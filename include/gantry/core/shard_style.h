// How a rule says a module is split over the ranks of a group, and what becomes of its parameters. Without LibTorch.
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
  std::int64_t groups = 0;     // groups of query heads with their key and value head, of `unit` (shard_groups)
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

// How tokens reach experts of other ranks: each rank's rows alone travel, or every rank gets all tokens (which is
// plain, and what the other one is tested against).
enum class ExpertDispatch { kAllToAll, kAllGather };

// Experts (nn::Experts), each split along its width over all ranks: tokens come and go as activations between split
// modules do. Or, `partitioned` over the ranks of the expert view (parallel.expert), each whole on one of them: every
// rank then comes with tokens of its own.
struct Expert {
  std::optional<Layout> border;  // Replicate{}, or Shard{1}. Unset as of Column::input
  GradientSum gradient_sum = GradientSum::kInBackward;
  bool partitioned = false;  // said by who shards, as the mesh is
  ExpertDispatch dispatch = ExpertDispatch::kAllToAll;
};

// A module that works on whole activations also where others work on sequence shards: before a scatter or after a
// gather. Its gradients are whole on every rank.
struct Whole {};

// For nn::PrepareInput: brings an activation from one layout to another.
struct PrepareInput {
  Layout from = Shard{1};
  Layout to = Replicate{};
};

using ShardStyle = std::variant<Column, Row, Vocab, SequenceParallel, OnHeads, Expert, Whole, PrepareInput>;
std::string describe(const ShardStyle& style);  // "Column{segments 3, unit 64}"

// How a module has split one of its parameters over the axes that it was given: the cuts, in their order, the axes
// along which ranks have parts of its gradient, whose sum it is, and in which view of the mesh those axes are.
struct ParameterSplit {
  std::vector<ShardSpec> cuts;
  std::vector<std::string> partial_axes;
  axis::View view = axis::View::kDense;

  ParameterSplit() = default;
  ParameterSplit(ShardSpec cut) {  // NOLINT(google-explicit-constructor): {{"weight", shard(0, size, ranks)}}
    if (cut.sharded()) cuts.push_back(std::move(cut));
  }
  bool operator==(const ParameterSplit&) const = default;
};

using Placements = std::map<std::string, ParameterSplit>;  // by the module's own parameter names; absent: replicated

// The experts of one layer, each of down(activation(gate(x)) * up(x)), and how their parameters lie.
struct ExpertShape {
  std::int64_t experts = 1, hidden = 1, width = 1;
  bool bias = false;
  bool interleaved = false;  // gate_up_proj [experts, hidden, 2 width], of columns gate, up, gate, up, ...
};
// gate_up_proj [experts, 2 width, hidden], all rows of gate and then all of up; down_proj [experts, hidden, width];
// gate_up_proj_bias [experts, 2 width] and down_proj_bias [experts, hidden]. Interleaved: the matrices turned.
std::map<std::string, Shape> expert_parameters(const ExpertShape& shape);
// What Expert{} makes of them. ConfigError (with sizes) where there are more ranks than columns of an expert, or, where
// they are partitioned, than experts.
Placements split_of(const Expert& style, const ExpertShape& shape, const std::vector<Axis>& axes);

// What a style makes of a parameter of that shape over those axes: the weight of a matrix ([out, in], or [rows,
// columns] of a table) where it has two dims, its bias or a norm's parameter where it has one. ConfigError (with sizes)
// where they don't fit.
ParameterSplit split_of(const ShardStyle& style, const Shape& shape, const std::vector<Axis>& axes);

}  // namespace gantry

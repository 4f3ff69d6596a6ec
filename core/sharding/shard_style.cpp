#include "gantry/core/shard_style.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

const std::string kBias = "_bias";

// The parts by which a column-parallel projection is partitioned.
std::vector<Part> parts_of(const Column& column, std::int64_t out_features) {
  if (column.parts.empty()) {
    if (column.users > 0) return {{.size = out_features, .unit = column.unit, .users = column.users}};
    return {};
  }
  std::int64_t total = 0;
  for (const Part& part : column.parts) total += part.size;
  if (total != out_features)
    throw ConfigError({"", fmt::format("the parts sum to {} of {} output features", total, out_features),
                       "parts that sum to all output features", ""});
  return column.parts;
}

int ranks_over(const std::vector<Axis>& axes) { return ShardSpec{.axes = axes, .segments = {}}.ranks(); }

ParameterSplit over(ShardSpec shard, const std::vector<Axis>& axes) {
  shard.axes = axes;
  return shard;
}

// Replicated. With activations that are sharded along the sequence, its gradient is a partial sum.
ParameterSplit full(bool sees_parts, GradientSum sum, const std::vector<Axis>& axes) {
  ParameterSplit split;
  if (sees_parts && sum == GradientSum::kAtSync) split.partial_axes = names_of(axes);
  return split;
}

// The dimension of the features: the first one, unless it is one of several and has size 1 ([1, 1, heads, 1]).
int feature_dim(const Shape& shape) {
  const auto dim = std::find_if(shape.begin(), shape.end(), [](std::int64_t size) { return size != 1; });
  return dim == shape.end() ? 0 : static_cast<int>(dim - shape.begin());
}

ParameterSplit split_columns(const Column& column, const Shape& shape, const std::vector<Axis>& axes) {
  if (column.groups > 0)
    return over(shard_groups(0, shape.front(), column.groups, column.unit, ranks_over(axes)), axes);
  if (column.blocks > 0)
    return over(shard_blocks(0, shape.front(), column.blocks, column.unit, ranks_over(axes)), axes);
  const int dim = shape.size() > 2 ? feature_dim(shape) : 0;
  const std::int64_t features = shape[static_cast<std::size_t>(dim)];
  const auto parts = parts_of(column, features);
  return over(parts.empty() ? shard(dim, features, ranks_over(axes), column.segments, column.unit)
                            : shard_parts(dim, parts, ranks_over(axes)),
              axes);
}

}  // namespace

std::string describe(const ShardStyle& style) {
  if (const auto* column = std::get_if<Column>(&style)) {
    if (column->groups > 0) return fmt::format("Column{{groups {}, unit {}}}", column->groups, column->unit);
    if (column->blocks > 0) return fmt::format("Column{{blocks {}, unit {}}}", column->blocks, column->unit);
    return column->parts.empty() ? fmt::format("Column{{segments {}, unit {}}}", column->segments, column->unit)
                                 : fmt::format("Column{{{} parts}}", column->parts.size());
  }
  if (const auto* row = std::get_if<Row>(&style)) return fmt::format("Row{{unit {}}}", row->unit);
  if (const auto* sequence = std::get_if<SequenceParallel>(&style))
    return fmt::format("SequenceParallel{{dim {}}}", sequence->dim);
  if (const auto* prepare = std::get_if<PrepareInput>(&style))
    return fmt::format("PrepareInput{{{} to {}}}", describe(prepare->from), describe(prepare->to));
  if (std::holds_alternative<OnHeads>(style)) return "OnHeads{}";
  if (std::holds_alternative<Expert>(style)) return "Expert{}";
  return std::holds_alternative<FullSequence>(style) ? "FullSequence{}" : "Vocab{}";
}

std::map<std::string, Shape> expert_parameters(const ExpertShape& shape) {
  const std::int64_t columns = shape.inner();
  std::map<std::string, Shape> shapes = {
      {shape.input_stack(), shape.input_is_first() ? Shape{shape.experts, shape.hidden, columns}
                                                   : Shape{shape.experts, columns, shape.hidden}},
      {kDownStack, shape.input_is_first() ? Shape{shape.experts, shape.width, shape.hidden}
                                          : Shape{shape.experts, shape.hidden, shape.width}}};
  if (!shape.bias) return shapes;
  shapes[shape.input_stack() + kBias] = {shape.experts, columns};
  shapes[kDownStack + kBias] = {shape.experts, shape.hidden};
  return shapes;
}

namespace {

// Each rank has full experts, as evenly as possible.
Placements partition_experts(const ExpertShape& shape, const std::vector<Axis>& axes) {
  Placements placements;
  for (const auto& [name, full] : expert_parameters(shape)) {
    ParameterSplit split = over(shard(0, shape.experts, ranks_over(axes)), axes);
    split.view = axis::View::kExpert;
    placements[name] = std::move(split);
  }
  return placements;
}

}  // namespace

ShardSpec shard_inner(const ExpertShape& shape, int dim, int ranks) {
  if (shape.interleaved) return shard(dim, shape.inner(), ranks, /*segments=*/1, /*unit=*/2);
  return shard(dim, shape.inner(), ranks, /*segments=*/shape.gated ? 2 : 1);
}

Placements split_of(const Expert& style, const ExpertShape& shape, const std::vector<Axis>& axes) {
  if (style.partitioned) return partition_experts(shape, axes);
  const int ranks = ranks_over(axes);
  const auto columns = [&](int dim) { return over(shard_inner(shape, dim, ranks), axes); };
  Placements placements = {{shape.input_stack(), columns(shape.input_is_first() ? 2 : 1)},
                           {kDownStack, over(shard(shape.input_is_first() ? 1 : 2, shape.width, ranks), axes)}};
  if (!shape.bias) return placements;
  placements[shape.input_stack() + kBias] = columns(1);
  placements[kDownStack + kBias] = full(true, style.gradient_sum, axes);  // added by one rank only
  return placements;
}

ParameterSplit split_of(const ShardStyle& style, const Shape& shape, const std::vector<Axis>& axes) {
  if (const auto* column = std::get_if<Column>(&style)) return split_columns(*column, shape, axes);
  if (const auto* row = std::get_if<Row>(&style)) {
    const bool is_bias = shape.size() == 1;  // added once, after the reduction
    if (is_bias) return full(row->output && std::holds_alternative<Shard>(*row->output), row->gradient_sum, axes);
    return over(shard(1, shape.at(1), ranks_over(axes), 1, row->unit), axes);
  }
  if (std::holds_alternative<Vocab>(style)) return over(shard(0, shape.front(), ranks_over(axes)), axes);
  if (const auto* heads = std::get_if<OnHeads>(&style)) return full(true, heads->gradient_sum, axes);
  if (std::holds_alternative<Expert>(style))
    throw ConfigError({"", fmt::format("a parameter of {} dims cannot be sharded with Expert{{}}", shape.size()),
                       "use Expert{} for nn::Experts", ""});
  const auto* sequence = std::get_if<SequenceParallel>(&style);
  return full(sequence != nullptr, sequence ? sequence->gradient_sum : GradientSum::kInBackward, axes);
}

}  // namespace gantry

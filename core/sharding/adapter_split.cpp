#include "gantry/core/sharding/adapter_split.h"

namespace gantry {
namespace {

ParameterSplit partial(GradientSum sum, const std::vector<Axis>& axes) {
  ParameterSplit split;
  if (sum == GradientSum::kAtSync) split.partial_axes = names_of(axes);
  return split;
}

void leave_out_full(Placements& placements) {
  std::erase_if(placements, [](const auto& each) { return each.second == ParameterSplit(); });
}

}  // namespace

Placements split_of_adapter(const ShardStyle& style, const Shape& a, const Shape& b, const std::vector<Axis>& axes) {
  Placements placements = {{kAdapterA, {}}, {kAdapterB, {}}};
  if (const auto* column = std::get_if<Column>(&style)) {
    placements[kAdapterA] = partial(column->gradient_sum, axes);
    placements[kAdapterB] = split_of(style, b, axes);
  } else if (const auto* row = std::get_if<Row>(&style)) {
    placements[kAdapterA] = split_of(style, a, axes);
    placements[kAdapterB] = partial(row->gradient_sum, axes);
  } else {
    placements[kAdapterA] = split_of(style, a, axes);
    placements[kAdapterB] = split_of(style, b, axes);
  }
  placements[kAdapterMagnitude] = placements[kAdapterB];
  leave_out_full(placements);
  return placements;
}

Placements split_of_table_adapter(const ShardStyle& style, const Shape& a, const Shape& b,
                                  const std::vector<Axis>& axes) {
  Placements placements = {{kTableAdapterA, split_of(style, a, axes)}};
  if (!std::holds_alternative<Vocab>(style)) placements[kTableAdapterB] = split_of(style, b, axes);
  placements[kTrainedTokens] = placements[kTableAdapterB];
  leave_out_full(placements);
  return placements;
}

Placements split_of_stack_adapter(const std::string& parameter, const Expert& style, const ExpertShape& shape,
                                  const std::vector<Axis>& axes) {
  const std::string a = parameter + kStackAdapterA, b = parameter + kStackAdapterB;
  const int ranks = ShardSpec{.axes = axes, .segments = {}}.ranks();
  const auto over = [&](ShardSpec shard) {
    shard.axes = axes;
    return ParameterSplit(std::move(shard));
  };
  Placements placements;
  if (style.partitioned) {
    for (const auto& name : {a, b}) {
      placements[name] = over(shard(0, shape.experts, ranks));
      placements[name].view = axis::View::kExpert;
    }
  } else if (parameter == shape.input_stack()) {
    placements[a] = partial(style.gradient_sum, axes);
    placements[b] = over(shard_inner(shape, 1, ranks));
  } else {
    placements[a] = over(shard(2, shape.width, ranks));
    placements[b] = partial(style.gradient_sum, axes);
  }
  leave_out_full(placements);
  return placements;
}

bool is_stack_adapter(const std::string& name) {
  return name.ends_with(kStackAdapterA) || name.ends_with(kStackAdapterB);
}

bool is_adapter(const std::string& name) {
  for (const char* factor : {kAdapterA, kAdapterB, kAdapterMagnitude, kTableAdapterA, kTableAdapterB, kTrainedTokens})
    if (name.ends_with(std::string(".") + factor)) return true;
  return is_stack_adapter(name);
}

std::string adapted_layer(const std::string& name) {
  return is_stack_adapter(name) ? name.substr(0, name.size() - std::string(kStackAdapterA).size())
                                : name.substr(0, name.rfind('.'));
}

}  // namespace gantry

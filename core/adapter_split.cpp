#include "gantry/core/adapter_split.h"

#include "gantry/core/planted.h"

namespace gantry {
namespace {

ParameterSplit partial(GradientSum sum, const std::vector<Axis>& axes) {
  ParameterSplit split;
  if (sum == GradientSum::kAtSync && !planted("adapter-factor-not-summed")) split.partial_axes = names_of(axes);
  return split;
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
  std::erase_if(placements, [](const auto& each) { return each.second == ParameterSplit(); });
  return placements;
}

bool is_adapter(const std::string& name) {
  return name.ends_with(std::string(".") + kAdapterA) || name.ends_with(std::string(".") + kAdapterB);
}

std::string adapted_layer(const std::string& name) { return name.substr(0, name.rfind('.')); }

}  // namespace gantry

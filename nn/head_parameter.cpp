#include "gantry/nn/head_parameter.h"

#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

HeadParameterImpl::HeadParameterImpl(const std::string& name, const Shape& shape) : shapes_{{name, shape}} {
  value_ = register_parameter(name, torch::empty(shape));
}

Placements HeadParameterImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  if (!std::holds_alternative<Column>(style)) refuse_style("a HeadParameter", style, "Column{}");
  const Placements placements = split_parameters(shapes_, style, axes);
  shard_parameters(*this, placements, axes);
  return placements;
}

}  // namespace gantry::nn

// A parameter of recurrent layers that heads or their channels own, such as a decay.
#pragma once

#include <map>
#include <string>

#include <torch/nn/module.h>

#include "gantry/nn/shard_style.h"

namespace gantry::nn {

// One parameter `name` with this shape, of which one dimension is above 1. After shard(Column): the part of the local
// heads. The caller initialises it in place.
class HeadParameterImpl : public torch::nn::Module, public Shardable {
 public:
  HeadParameterImpl(const std::string& name, const Shape& shape);

  const torch::Tensor& value() const { return value_; }
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;

 private:
  std::map<std::string, Shape> shapes_;
  torch::Tensor value_;
};
TORCH_MODULE(HeadParameter);

}  // namespace gantry::nn

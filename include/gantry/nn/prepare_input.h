// A place in a model where an activation changes its layout over tp: C++ modules have no hooks that could do it.
#pragma once

#include <torch/nn/module.h>

#include "gantry/nn/shard_style.h"

namespace gantry::nn {

// Identity until shard(PrepareInput{from, to}); then redistribute() over the group.
class PrepareInputImpl : public torch::nn::Module, public Shardable {
 public:
  torch::Tensor forward(const torch::Tensor& input) {
    return group_ ? redistribute(input, *group_, layouts_.from, layouts_.to) : input;
  }
  Placements shard(const ShardStyle& style, ProcessGroup& group) override {
    const auto* layouts = std::get_if<gantry::PrepareInput>(&style);
    if (!layouts) refuse_style("a PrepareInput", style, "PrepareInput{from, to}");
    layouts_ = *layouts;
    group_ = &group;
    return {};
  }

 private:
  gantry::PrepareInput layouts_;
  ProcessGroup* group_ = nullptr;
};
TORCH_MODULE(PrepareInput);

}  // namespace gantry::nn

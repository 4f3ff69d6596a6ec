// A place in a model where an activation changes its layout over tp: C++ modules have no hooks that could do it.
#pragma once

#include <optional>

#include <torch/nn/module.h>

#include "gantry/nn/shard_style.h"

namespace gantry::nn {

// Identity until shard(PrepareInput{from, to}); then redistribute() over the group.
class PrepareInputImpl : public torch::nn::Module, public Shardable {
 public:
  torch::Tensor forward(const torch::Tensor& input) {
    return group_ ? redistribute(input, *group_, layouts_.from, layouts_.to) : input;
  }
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override {
    const auto* layouts = std::get_if<gantry::PrepareInput>(&style);
    if (!layouts) refuse_style("a PrepareInput", style, "PrepareInput{from, to}");
    layouts_ = *layouts;
    group_ = &axes.group();
    return {};
  }

 private:
  gantry::PrepareInput layouts_;
  ProcessGroup* group_ = nullptr;
};
TORCH_MODULE(PrepareInput);

// Takes an activation that all heads share to this rank's heads (the one turning key of latent attention): identity
// until shard(Column{}). Its gradient is then the sum over the ranks, and sequence shards are gathered, as the input of
// a column-split Linear is.
class EnterHeadsImpl : public torch::nn::Module, public Shardable {
 public:
  torch::Tensor forward(const torch::Tensor& input) const;
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;
  bool depends_on_sequence() const override { return true; }

 private:
  std::optional<Layout> input_;
  ProcessGroup* group_ = nullptr;
};
TORCH_MODULE(EnterHeads);

// What EnterHeads does: into the part of a model where the group's ranks have parts of the gradient.
torch::Tensor enter_split(const torch::Tensor& input, ProcessGroup& group, const std::optional<Layout>& layout);

}  // namespace gantry::nn

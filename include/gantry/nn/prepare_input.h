// Modules that change the layout of an activation over tp; LibTorch's C++ modules have no hooks for this.
#pragma once

#include <optional>

#include <torch/nn/module.h>

#include "gantry/nn/shard_style.h"

namespace gantry::nn {

// Identity until shard(PrepareInput{from, to}); after that, redistribute() over the group.
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

// Passes an activation that all heads share to this rank's heads (the shared rotary key of latent attention). Identity
// until shard(Column{}). After that, its gradient is reduced over the ranks, and sequence shards are gathered, as for
// the input of a column-sharded Linear.
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

// The function of EnterHeads: enters a region of the model in which each rank has a summand of the gradient.
torch::Tensor enter_split(const torch::Tensor& input, ProcessGroup& group, const std::optional<Layout>& layout);

}  // namespace gantry::nn

// The experts of a layer (Shazeer et al., arXiv 1701.06538): many MLPs, of which each token uses a few. No token is
// dropped, whatever the router says.
#pragma once

#include "gantry/nn/router.h"

namespace gantry::nn {

struct ExpertsOptions {
  ExpertShape shape;
  std::string activation = "silu";  // nn::activation_names()
  // Above 0 (gpt-oss): gate is cut off above it, up on both sides, and gate * sigmoid(1.702 gate) * (up + 1) takes the
  // activation's place.
  double limit = 0;
};

// forward: tokens [..., hidden] and what a router has decided of them -> [..., hidden], the sum of each token's experts
// by their weights, in the order of the choice. Parameters as expert_parameters (core/shard_style.h) says.
//
// After shard(Expert{}) each rank has a part of every expert's width: all ranks compute all tokens, and the results are
// summed. Tokens and routing come in, and tokens go out, whole on all ranks or, with the border Shard{1}, as sequence
// shards; then they are gathered first, and reduce-scattered after. Rows lie in a fixed order, so the same layout gives
// the same bits, run after run.
class ExpertsImpl : public torch::nn::Module, public Shardable {
 public:
  explicit ExpertsImpl(ExpertsOptions options);
  torch::Tensor forward(const torch::Tensor& tokens, const Routing& routing);
  Placements shard(const ShardStyle& style, ProcessGroup& group) override;

  const ExpertsOptions options;
  torch::Tensor gate_up_proj, down_proj, gate_up_proj_bias, down_proj_bias;  // biases undefined without

 private:
  torch::Tensor activated(const torch::Tensor& gate_up) const;
  torch::Tensor entering(const torch::Tensor& part) const;
  torch::Tensor leaving(const torch::Tensor& partial) const;
  torch::Tensor output_bias() const;

  ProcessGroup* group_ = nullptr;
  Expert style_;
};
TORCH_MODULE(Experts);

}  // namespace gantry::nn

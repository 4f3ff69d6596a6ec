// The experts of a layer (Shazeer et al., arXiv 1701.06538): many MLPs, of which each token uses a few. No token is
// dropped, whatever the router says.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gantry/nn/router.h"

namespace gantry::nn {

struct AdapterOptions;     // nn/linear.h
struct DispatchedExperts;  // nn/expert_exchange.h
struct GroupedWeight;

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
// shards; then they are gathered first, and reduce-scattered after.
//
// After shard(Expert{.partitioned = true}) each rank has whole experts, as evenly as possible, and tokens of its own:
// a token's rows travel to the ranks of its experts, and come back to be weighed and added there. Collective over the
// group in forward and backward, also of a rank without tokens and of an expert without any.
//
// Rows lie in a fixed order, so the same layout gives the same bits, run after run.
class ExpertsImpl : public torch::nn::Module, public Shardable {
 public:
  explicit ExpertsImpl(ExpertsOptions options);
  torch::Tensor forward(const torch::Tensor& tokens, const Routing& routing);
  // forward() in three steps, where rows travel: they leave for the experts; are computed there and leave for home; and
  // come home, where they are weighed by routing.weights and added. What is computed between two steps runs while rows
  // are under way; so does its backward, while their gradients are. Each step is collective over the group.
  bool travels() const;
  std::shared_ptr<DispatchedExperts> depart(const torch::Tensor& tokens, const Routing& routing);
  void turn(DispatchedExperts& dispatched);
  torch::Tensor arrive(DispatchedExperts& dispatched, const torch::Tensor& weights);
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;
  // Adds an adapter an expert to "gate_up_proj" or "down_proj", each once and before shard(): parameters
  // "gate_up_proj_lora_A" [experts, rank, in] and "gate_up_proj_lora_B" [experts, out, rank], with PEFT's initial
  // values, deferred (tensors/deferred_init.h). It has no dropout, as PEFT's of a parameter. UsageError.
  void add_adapter(const std::string& parameter, const AdapterOptions& adapter);
  // The choices that came into forwards here since the last call, less the rows that were computed here: summed over
  // the group, 0 where no token was dropped.
  std::int64_t take_dropped() { return std::exchange(dropped_, 0); }

  const ExpertsOptions options;
  torch::Tensor gate_up_proj, down_proj, gate_up_proj_bias, down_proj_bias;  // biases undefined without

 private:
  struct Adapter {
    torch::Tensor a, b;
    double scale = 1;
  };
  torch::Tensor projected(const torch::Tensor& rows, const std::string& parameter, const GroupedWeight& weight,
                          const std::vector<std::int64_t>& counts) const;
  // What these experts make of rows that are sorted by expert; `bias` is down_proj's.
  torch::Tensor computed(const torch::Tensor& rows, const torch::Tensor& bias, const std::vector<std::int64_t>& counts);
  torch::Tensor over_width(const torch::Tensor& tokens, const Routing& routing);
  torch::Tensor by_gathering(const torch::Tensor& tokens, const Routing& routing);
  torch::Tensor activated(const torch::Tensor& gate_up) const;
  torch::Tensor entering(const torch::Tensor& part) const;
  torch::Tensor leaving(const torch::Tensor& partial) const;
  torch::Tensor output_bias() const;

  ProcessGroup* group_ = nullptr;
  Expert style_;
  bool is_sharded_ = false;
  std::map<std::string, Adapter> adapters_;  // by the parameter
  std::vector<Range> held_;                  // experts by rank, where they are partitioned
  std::int64_t dropped_ = 0;
};
TORCH_MODULE(Experts);

}  // namespace gantry::nn

// The experts of a layer (Shazeer et al., arXiv 1701.06538): many MLPs, of which each token uses a few. No token is
// dropped, whatever the router chooses.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gantry/core/row_encoding.h"
#include "gantry/nn/router.h"

namespace gantry::nn {

struct Dispatch;           // nn/dispatch.h
struct DispatchedExperts;  // nn/expert_exchange.h
struct GroupedWeight;

struct ExpertsOptions {
  ExpertShape shape;
  std::string activation = "silu";  // one of nn::activation_names()
  // Above 0 (gpt-oss): gate is clamped from above, up from both sides, and the activation is replaced by gate *
  // sigmoid(1.702 gate) * (up + 1).
  double limit = 0;
  // The weights of a token's experts multiply what they read, and not their outputs (Llama 4).
  bool weights_input = false;
};

// forward: tokens [..., hidden] and their routing -> [..., hidden], the sum of the weighted outputs of each token's
// experts, added in the order of the choice. Parameters: see expert_parameters (core/shard_style.h).
//
// After shard(Expert{}), each rank has a part of the width of every expert: all ranks compute all tokens, and the
// results are reduced. Tokens, routing and outputs are full on all ranks. With the border Shard{1} they are sequence
// shards, which are gathered before and reduce-scattered after.
//
// After shard(Expert{.partitioned = true}), each rank has complete experts, as evenly as possible, and its own tokens.
// Tokens are dispatched to the ranks of their experts, and the results are sent back, weighted and added there
// (combine). Collective over the group in forward and backward, also for ranks without tokens and experts without
// tokens.
//
// The order of rows is fixed, so results are bitwise reproducible in the same layout.
class ExpertsImpl : public torch::nn::Module, public Shardable, public Adaptable {
 public:
  explicit ExpertsImpl(ExpertsOptions options);
  torch::Tensor forward(const torch::Tensor& tokens, const Routing& routing);
  // forward() in three steps, if travels() is true: dispatch() sends tokens to their experts, compute() computes the
  // experts and sends the results back, and combine() receives them, weights them by routing.weights and adds them.
  // Computation between two steps overlaps with the messages; the same applies to its backward. Each step is collective
  // over the group.
  bool travels() const;
  std::shared_ptr<DispatchedExperts> dispatch(const torch::Tensor& tokens, const Routing& routing);
  void compute(DispatchedExperts& dispatched);
  torch::Tensor combine(DispatchedExperts& dispatched, const torch::Tensor& weights);
  // Returns the factors of the outputs, which combine() needs: `weights`, or ones if these multiply the inputs.
  torch::Tensor output_weights(const torch::Tensor& weights) const;
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;
  // Adds a LoRA adapter per expert to one of stacks(). Call it at most once for each, before shard();
  // otherwise it throws UsageError. Parameters such as "gate_up_proj_lora_A" [experts, rank, in] and
  // "gate_up_proj_lora_B" [experts, out, rank] have PEFT's initial values, deferred (tensors/deferred_init.h). It has
  // no dropout, as PEFT's adapters of parameters.
  void add_adapter(const std::string& parameter, const AdapterOptions& adapter);
  LayerAdapterPlaces adapter_places(const AdapterOptions& adapter, const std::string& stack) const override;
  void use_adapter(const LayerAdapter& adapter, const std::string& stack) override;
  // Stores the frozen stacks in 4 or 8 bits, like LinearImpl::quantize(): each row of an expert's matrix becomes a
  // record. Each use computes the values of one expert at a time. With kMxfp4, matrices are [out, in] from then on.
  // Call it at most once, before shard(); otherwise it throws UsageError.
  void quantize(WeightCode code);
  // The records of a stack on this rank; no value without quantize().
  std::optional<RowEncoding> encoding(const std::string& parameter) const;
  // Returns the number of token-expert choices since the last call minus the number of rows that were computed here.
  // The sum over the group is 0 if no token was dropped.
  std::int64_t take_dropped() { return std::exchange(dropped_, 0); }

  std::array<std::string, 2> stacks() const { return {options.shape.input_stack(), kDownStack}; }

  const ExpertsOptions options;
  // Without a gate, gate_up_proj is registered as up_proj. Biases are undefined if options.shape.bias is false. After
  // quantize(), stacks are records of uint8.
  torch::Tensor gate_up_proj, down_proj, gate_up_proj_bias, down_proj_bias;

 private:
  LayerAdapterPlaces full_adapter(const AdapterOptions& adapter, const std::string& stack,
                                  const Placements& splits) const;
  ExpertShape used_shape() const;
  torch::Tensor projected(const torch::Tensor& rows, const std::string& parameter, const GroupedWeight& weight,
                          const std::vector<std::int64_t>& counts) const;
  torch::Tensor input_rows(const torch::Tensor& tokens, const torch::Tensor& weights, const Dispatch& dispatch) const;
  torch::Tensor output_sums(const torch::Tensor& rows, const torch::Tensor& weights, const Dispatch& dispatch) const;
  // Computes these experts for rows that are sorted by expert. `bias` is that of down_proj.
  torch::Tensor computed(const torch::Tensor& rows, const torch::Tensor& bias, const std::vector<std::int64_t>& counts);
  torch::Tensor over_width(const torch::Tensor& tokens, const Routing& routing);
  torch::Tensor by_gathering(const torch::Tensor& tokens, const Routing& routing);
  torch::Tensor activated(const torch::Tensor& gate_up) const;
  torch::Tensor entering(const torch::Tensor& part) const;
  torch::Tensor leaving(const torch::Tensor& partial) const;
  torch::Tensor output_bias() const;

  ProcessGroup* group_ = nullptr;
  Expert style_;
  std::vector<Axis> axes_;  // the axes of shard()
  bool is_sharded_ = false;
  std::map<std::string, LayerAdapter> adapters_;  // by parameter name
  std::map<std::string, RowEncoding> encodings_;  // by parameter name
  std::vector<Range> held_;                       // if partitioned: the experts of each rank
  std::int64_t dropped_ = 0;
};
TORCH_MODULE(Experts);

}  // namespace gantry::nn

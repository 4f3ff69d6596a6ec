// Routers: select the experts of each token and their weights.
#pragma once

#include "gantry/nn/adaptable.h"
#include "gantry/nn/shard_style.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

struct RouterOptions {
  // How the logits x W^T + b become scores, and by which scores experts are selected.
  enum class Scores {
    kSoftmax,        // softmax over all experts (Mixtral, Qwen)
    kSoftmaxOfUsed,  // softmax over the selected experts, which are selected by logits (gpt-oss)
    kSigmoid,        // sigmoid (DeepSeek-V3, arXiv 2412.19437)
  };
  std::int64_t hidden = 1, experts = 1;
  std::int64_t used = 1;  // number of experts per token
  Scores scores = Scores::kSoftmax;
  bool normalised = false;      // divide the weights of a token by their sum
  double added = 0;             // added to this sum
  double least_sum = 0;         // lower limit of this sum
  double scale = 1;             // factor of the resulting weights
  bool bias = false;            // the logits have a bias
  bool correction = false;      // expert bias: added to an expert's score for the selection only
  bool correction_row = false;  // the expert bias has the shape [1, experts] (ERNIE 4.5)
  // Select only from the used_groups groups with the largest sum of their top group_scores scores.
  std::int64_t groups = 1, used_groups = 1, group_scores = 2;
};

// The result of a router for tokens [..., hidden]. Among equal scores, the expert with the lower index comes first.
struct Routing {
  torch::Tensor ids;      // int64 [..., used]
  torch::Tensor weights;  // [..., used], at least float32
  torch::Tensor logits;   // [..., experts], at least float32
};

// Parameters: weight [experts, hidden]; bias [experts] if options.bias; e_score_correction_bias [experts] if
// options.correction ([1, experts] with correction_row), which has no gradient and is at least float32. Computes in at
// least float32. In a training step it adds the losses of experts.balance and counts the choices for
// experts.bias_update. With SequenceParallel, its tokens are this rank's part of the sequence, and its parameter
// gradients are partial sums; otherwise it is replicated.
class RouterImpl : public torch::nn::Module, public Shardable, public Adaptable, public KeepsFloat32 {
 public:
  // Throws ConfigError if the options are inconsistent.
  explicit RouterImpl(const RouterOptions& options);
  Routing forward(const torch::Tensor& tokens);
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;

  bool keeps_float32(const std::string& parameter) const override;
  // Adds a LoRA adapter to the logits. Call it at most once, before shard(); otherwise it throws UsageError. Parameters
  // "lora_A" [rank, hidden] and "lora_B" [experts, rank], as in nn::Linear. It has no dropout, as PEFT's adapters of
  // parameters.
  void add_adapter(const AdapterOptions& adapter);
  bool has_adapter() const { return lora_a.defined(); }
  LayerAdapterPlaces adapter_places(const AdapterOptions& adapter, const std::string& stack = {}) const override;
  void use_adapter(const LayerAdapter& adapter, const std::string& stack = {}) override;

  // Returns the indices of the `count` largest scores, in descending order; among equal scores the lower index first:
  // [..., count].
  static torch::Tensor largest(const torch::Tensor& scores, std::int64_t count);
  // Returns DeepSeek-V3's update of the expert bias, [experts]: `rate` for an expert with fewer tokens than the mean,
  // -rate for one with more. `counts`: tokens per expert, [experts].
  torch::Tensor change_of_correction(const torch::Tensor& counts, double rate) const;

  const RouterOptions options;
  torch::Tensor weight, bias, correction;  // undefined if the options disable them
  torch::Tensor lora_a, lora_b;            // undefined without an adapter

 private:
  torch::Tensor chosen(const torch::Tensor& scores) const;
  torch::Tensor used_parameter(const torch::Tensor& parameter) const;

  torch::Tensor logits_of(const torch::Tensor& tokens) const;

  ProcessGroup* summed_over_ = nullptr;
  bool is_sharded_ = false;
  double adapter_scale_ = 1;
};
TORCH_MODULE(Router);

}  // namespace gantry::nn

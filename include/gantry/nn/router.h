// Which experts each token goes to, and with what weights.
#pragma once

#include "gantry/nn/shard_style.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

struct AdapterOptions;  // nn/linear.h

struct RouterOptions {
  // What becomes of the logits x W^T + b, and what the experts are chosen by.
  enum class Scores {
    kSoftmax,        // over all experts (Mixtral, Qwen)
    kSoftmaxOfUsed,  // over those that were chosen by their logits (gpt-oss)
    kSigmoid,        // (DeepSeek-V3, arXiv 2412.19437)
  };
  std::int64_t hidden = 1, experts = 1;
  std::int64_t used = 1;  // experts of a token
  Scores scores = Scores::kSoftmax;
  bool normalised = false;                   // a token's weights are divided by their sum
  double added = 0;                          // to that sum
  double scale = 1;                          // of the weights, after that
  bool bias = false;                         // of the logits
  bool correction = false;                   // a number for each expert is added to its score where experts are chosen
  std::int64_t groups = 1, used_groups = 1;  // the experts of these groups with the largest two scores are chosen from
};

// What a router has decided of tokens [..., hidden]. Of equal scores the expert with the lower number comes first.
struct Routing {
  torch::Tensor ids;      // int64 [..., used]
  torch::Tensor weights;  // [..., used], float32 or wider
  torch::Tensor logits;   // [..., experts], float32 or wider
};

// Parameters weight [experts, hidden], with bias bias [experts], with correction e_score_correction_bias [experts],
// which takes no gradient and is float32 or wider. It computes in float32 or wider. In a step it adds the losses, and
// counts the choices, that experts.balance and experts.bias_update ask for. Under SequenceParallel its tokens are this
// rank's part of the sequence, and the gradients of its parameters are partial sums; else it is whole on every rank.
class RouterImpl : public torch::nn::Module, public Shardable, public KeepsFloat32 {
 public:
  // ConfigError for numbers that don't fit each other.
  explicit RouterImpl(const RouterOptions& options);
  Routing forward(const torch::Tensor& tokens);
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;

  bool keeps_float32(const std::string& parameter) const override;
  // Adds an adapter to the logits, once and before shard(): parameters "lora_A" [rank, hidden] and "lora_B" [experts,
  // rank], as nn::Linear's. It has no dropout, as PEFT's of a parameter. UsageError.
  void add_adapter(const AdapterOptions& adapter);
  bool has_adapter() const { return lora_a.defined(); }

  // Where the `count` largest are, the largest first, of equal ones the first: [..., count].
  static torch::Tensor largest(const torch::Tensor& scores, std::int64_t count);
  // What DeepSeek-V3's update adds to the correction, [experts]: `rate` for an expert with fewer tokens than the mean,
  // -rate for one with more. `counts` [experts].
  torch::Tensor change_of_correction(const torch::Tensor& counts, double rate) const;

  const RouterOptions options;
  torch::Tensor weight, bias, correction;  // undefined where it has none
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

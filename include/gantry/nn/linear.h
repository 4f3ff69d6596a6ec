// A Linear with the interface of torch::nn::Linear (same options, same parameter names) that can be sharded over tp in
// place.
#pragma once

#include <optional>

#include <torch/nn/modules/linear.h>

#include "gantry/core/row_encoding.h"
#include "gantry/nn/adaptable.h"
#include "gantry/nn/dropout.h"
#include "gantry/nn/shard_style.h"

namespace gantry::nn {

class Linear;
class TrainedRows;
struct LinearInput;
struct LinearWeight;

// A LoRA adapter: adds scale * B A dropout(input) to the layer's output, with B [out, rank] and A [rank, in]. Hu et al.
// (arXiv 2106.09685).
struct AdapterOptions {
  std::int64_t rank = 8;
  double scale = 1;
  double dropout = 0;  // dropout probability on the input of A; masks do not depend on the layout
  // DoRA (arXiv 2402.09353): a trained magnitude [out] replaces the norm of each row of W + scale * B A. In training,
  // the base weight's part of this change has the same dropped input as A, as in PEFT.
  bool dora = false;
  // A starts as normal numbers with the standard deviation 1 / rank instead of Kaiming's uniform ones.
  bool gaussian = false;
  // PiSSA (arXiv 2404.02948): scale * B A starts as the part of the weight with the largest singular values, and is
  // subtracted from the weight.
  bool pissa = false;
  std::optional<int> power_steps = {};  // number of power iterations for an approximation; unset: exact
};

// forward: [..., in] -> [..., out]. After shard(Column): [..., in] -> [..., local out] (or gathered, out), and the
// input gradient is all-reduced over tp. After shard(Row): [..., local in] -> [..., out], and the output is all-reduced
// over tp. Sequence shards are gathered and reduce-scattered instead. The weight gradient is added directly to
// weight.mutable_grad(), so hooks on the weight receive an undefined gradient.
class LinearImpl : public torch::nn::Module, public Shardable, public Adaptable {
 public:
  LinearImpl(std::int64_t in_features, std::int64_t out_features)
      : LinearImpl(torch::nn::LinearOptions(in_features, out_features)) {}
  explicit LinearImpl(const torch::nn::LinearOptions& options);

  torch::Tensor forward(const torch::Tensor& input);
  void reset_parameters();  // as in torch::nn::Linear
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;
  // Adds a LoRA adapter. Call it at most once, before shard(); otherwise it throws UsageError. Its parameters "lora_A"
  // and "lora_B" have PEFT's initial values, which are deferred (tensors/deferred_init.h) and the same in every layout.
  // Other parameters are not frozen. With DoRA, "lora_magnitude_vector" starts as the norms of the weight's rows, or as
  // ones if the weight's initial values are still deferred: set it when the weight is loaded. The same holds for
  // PiSSA's factors and base. The adapter is sharded so
  // that its output has the layout of the layer's output (core/sharding/adapter_split.h).
  void add_adapter(const AdapterOptions& adapter);
  bool has_adapter() const { return lora_a.defined(); }
  LayerAdapterPlaces adapter_places(const AdapterOptions& adapter, const std::string& stack = {}) const override;
  void use_adapter(const LayerAdapter& adapter, const std::string& stack = {}) override;
  // True if the weight had no values when DoRA or PiSSA was added, so that the adapter's values do not fit it yet.
  bool awaits_base() const { return awaits_base_; }
  // Stores the frozen weight in 4 or 8 bits: its memory becomes records (core/row_encoding.h) when the model is
  // boosted, which load_weights() writes. Each use of the weight computes its values again. Call it at most once,
  // before shard(), for a weight that no other module shares; otherwise it throws UsageError.
  void quantize(WeightCode code);
  const std::optional<RowEncoding>& encoding() const { return encoding_; }  // this rank's part
  // The weight, or the values of its records in the type `type`.
  torch::Tensor weight_values(torch::ScalarType type) const;
  // Shares the weight with another module (a tied embedding). Call it before sharding.
  void tie_weight(const torch::Tensor& other);
  // Replaces rows of a tied weight by the trained tokens of the embedding that it is tied to. Call it after
  // tie_weight(), for a layer without an adapter.
  void share_tokens(std::shared_ptr<TrainedRows> tokens);
  // The same with values that are not parameters, also after shard(); null: the rows of the weight.
  void use_tokens(const std::shared_ptr<TrainedRows>& tokens) { trained_tokens_ = tokens; }
  void set_gather_output(bool gather);  // for column-sharded layers
  // For callers that compute the output [rows, local out] in parts: the sum of inputs[i] weights[i]^T, plus the bias.
  struct Factors {
    std::vector<torch::Tensor> inputs, weights;  // those of the layer, then those of a LoRA adapter
    torch::Tensor bias;                          // undefined without a bias
  };
  // False for row-sharded layers, DoRA, stored codes and trained tokens, whose output is not such a sum of this rank's
  // leaves.
  bool has_factors() const;
  // Requires has_factors(). The inputs are gathered from sequence shards, and their gradients are reduced over tp.
  Factors factors(const torch::Tensor& input);

  const torch::nn::LinearOptions options;  // global sizes
  torch::Tensor weight;                    // [out, in]; with encoding(): records of uint8
  torch::Tensor bias;                      // [out]; undefined without a bias
  torch::Tensor lora_a, lora_b;            // undefined without an adapter
  torch::Tensor lora_magnitude;            // [out]; undefined without DoRA

  // The sharding of the weight over tp: replicated before shard().
  const ShardSpec& weight_placement() const { return weight_placement_; }
  ProcessGroup* group() const { return group_; }  // null before shard()

 private:
  friend std::vector<torch::Tensor> together(const torch::Tensor& input, const std::vector<Linear>& layers);
  void start_adapter(const AdapterOptions& adapter);
  Placements adapter_splits() const;
  LinearInput input_layout() const;
  LinearWeight used_weight() const;
  torch::Tensor used_bias() const;
  torch::Tensor used_lora_a() const;
  torch::Tensor used_by_rows(const torch::Tensor& factor) const;
  bool is_row_split() const { return style_ && std::holds_alternative<Row>(*style_); }
  bool drops_input_of_adapter() const;
  torch::Tensor entered(const torch::Tensor& input) const;
  void shard_dropout(const ShardStyle& style, const ShardAxes& axes);
  std::vector<LinearWeight> readers_of_input() const;
  torch::Tensor with_adapter(const torch::Tensor* outputs, const torch::Tensor& input);
  torch::Tensor with_magnitudes(const torch::Tensor* outputs, const torch::Tensor& input);
  torch::Tensor with_tokens(const torch::Tensor* outputs) const;
  torch::Tensor forward_row(const Row& row, const torch::Tensor& input);
  torch::Tensor gather_columns(const torch::Tensor& output) const;

  ProcessGroup* group_ = nullptr;
  std::optional<ShardStyle> style_;
  std::vector<Axis> axes_;  // the axes of shard()
  ShardSpec weight_placement_;
  std::optional<RowEncoding> encoding_;
  double adapter_scale_ = 1;
  bool awaits_base_ = false;
  std::shared_ptr<TrainedRows> trained_tokens_;  // null: none
  Dropout adapter_dropout_{nullptr};             // null: no dropout
};
TORCH_MODULE(Linear);

// Returns the outputs of up to three layers with the same input (query, key and value; gate and up). The input is
// gathered once, and its gradient is reduced once. All layers must be column-sharded in the same way, or unsharded.
std::vector<torch::Tensor> together(const torch::Tensor& input, const std::vector<Linear>& layers);

}  // namespace gantry::nn

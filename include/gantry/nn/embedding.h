// An embedding with the interface of torch::nn::Embedding that can be sharded over tp by rows of its table (Vocab), or
// look up one rank's part of a sequence (SequenceParallel).
#pragma once

#include <torch/nn/modules/embedding.h>

#include "gantry/nn/adaptable.h"
#include "gantry/nn/shard_style.h"

namespace gantry::nn {

class TrainedRows;

// forward: int64 [...] -> [..., dim]. Look-ups of options.padding_idx do not contribute to the gradient, as in
// LibTorch. Throws InputError for an index outside of the vocabulary if the indices are on the host
// (tensors/host_copy.h). After shard(Vocab), each rank looks up its own rows, and the results are all-reduced over tp,
// or reduce-scattered along the dimension of Vocab::output. After shard(SequenceParallel), it takes the full indices
// and looks up this rank's part along the dimension. The gradient is deterministic on every device.
class EmbeddingImpl : public torch::nn::Module, public Shardable, public Adaptable {
 public:
  EmbeddingImpl(std::int64_t count, std::int64_t dim) : EmbeddingImpl(torch::nn::EmbeddingOptions(count, dim)) {}
  explicit EmbeddingImpl(const torch::nn::EmbeddingOptions& options);

  torch::Tensor forward(const torch::Tensor& indices);
  void reset_parameters();  // as in torch::nn::Embedding
  // Adds a LoRA adapter: the output grows by scale * B A[row], without dropout. Call it at most once, before shard();
  // otherwise it throws UsageError. Its parameters "lora_embedding_A" [count, rank] and "lora_embedding_B" [dim, rank]
  // have PEFT's initial values, zeros and normal random numbers, which are deferred (tensors/deferred_init.h). A tied
  // output layer does not use the adapter, as in PEFT.
  void add_adapter(const AdapterOptions& adapter);
  bool has_adapter() const { return lora_a.defined(); }
  LayerAdapterPlaces adapter_places(const AdapterOptions& adapter, const std::string& stack = {}) const override;
  void use_adapter(const LayerAdapter& adapter, const std::string& stack = {}) override;
  // Trains some rows of the frozen table: a parameter "trainable_tokens_delta" [tokens, dim] replaces them. It starts
  // as their values, or as zeros if the initial values of the table are still deferred: set it when the table is
  // loaded. Call it at most once, before shard(), for an embedding without an adapter; otherwise it throws UsageError.
  void train_tokens(const std::vector<std::int64_t>& tokens);
  const std::shared_ptr<TrainedRows>& trained_tokens() const { return trained_tokens_; }  // null without them
  // Replaces the trained tokens by values that are not parameters, also after shard(); null: the rows of the table.
  void use_tokens(const std::shared_ptr<TrainedRows>& tokens) { trained_tokens_ = tokens; }
  // True if the table had no values when its tokens were trained, so that these are still zeros.
  bool awaits_tokens() const { return awaits_tokens_; }
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;

  // For tables with rows sharded over ranks, without autograd. The result of own_rows() is [..., dim] with zeros for
  // rows of other ranks, so that the sum over the ranks is the look-up. The function add_to_own_rows() adds the
  // gradient of such a look-up to this rank's rows.
  torch::Tensor own_rows(const torch::Tensor& indices) const;
  void add_to_own_rows(const torch::Tensor& indices, const torch::Tensor& gradient);

  const torch::nn::EmbeddingOptions options;
  torch::Tensor weight;          // [count, dim]
  torch::Tensor lora_a, lora_b;  // undefined without an adapter

 private:
  struct Rows;
  Placements adapter_splits() const;
  Rows rows_of(const torch::Tensor& indices) const;
  torch::Tensor look_up(const torch::Tensor& indices, const torch::Tensor& table) const;
  torch::Tensor looked_up(const torch::Tensor& indices, bool sums_full, bool sums_sharded) const;
  torch::Tensor with_tokens(const torch::Tensor& indices, const torch::Tensor& found,
                            const torch::Tensor& values) const;

  ProcessGroup* group_ = nullptr;
  std::optional<ShardStyle> style_;
  std::vector<Axis> axes_;  // the axes of shard()
  ShardSpec placement_;
  double adapter_scale_ = 1;
  std::shared_ptr<TrainedRows> trained_tokens_;
  bool awaits_tokens_ = false;
};
TORCH_MODULE(Embedding);

}  // namespace gantry::nn

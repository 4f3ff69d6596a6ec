// Embedding, drop-in for torch::nn::Embedding, that can be split over tp by rows of its table (Vocab), or look up one
// rank's part of a sequence (SequenceParallel).
#pragma once

#include <torch/nn/modules/embedding.h>

#include "gantry/nn/shard_style.h"

namespace gantry::nn {

struct AdapterOptions;  // nn/linear.h

// options.padding_idx: look-ups of that row give it no gradient, as in LibTorch.
// forward: int64 [...] -> [..., dim]; InputError for an index outside the vocabulary, where the host has the indices
// (tensors/host_copy.h). After shard(Vocab) each rank looks up its own rows and the results are summed over tp, or
// reduce-scattered along the dim of Vocab::output. After shard(SequenceParallel) it takes whole indices and looks up
// this rank's part of them along dim. The gradient has the same bits each time, on any device.
class EmbeddingImpl : public torch::nn::Module, public Shardable {
 public:
  EmbeddingImpl(std::int64_t count, std::int64_t dim) : EmbeddingImpl(torch::nn::EmbeddingOptions(count, dim)) {}
  explicit EmbeddingImpl(const torch::nn::EmbeddingOptions& options);

  torch::Tensor forward(const torch::Tensor& indices);
  void reset_parameters();  // as torch::nn::Embedding's
  // Adds an adapter, once and before shard(): a looked-up row grows by scale * B A[row], without dropout. Its
  // parameters "lora_embedding_A" [count, rank] and "lora_embedding_B" [dim, rank] get PEFT's initial values, zeros and
  // normal ones, deferred (tensors/deferred_init.h). A tied output layer does not see it, as with PEFT. UsageError.
  void add_adapter(const AdapterOptions& adapter);
  bool has_adapter() const { return lora_a.defined(); }
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;

  // Without a graph, of a table whose rows lie over ranks: [..., dim], zero where another rank has the row, so that the
  // ranks' sum is the look-up; and adding such a look-up's gradient to this rank's rows.
  torch::Tensor own_rows(const torch::Tensor& indices) const;
  void add_to_own_rows(const torch::Tensor& indices, const torch::Tensor& gradient);

  const torch::nn::EmbeddingOptions options;
  torch::Tensor weight;          // [count, dim]
  torch::Tensor lora_a, lora_b;  // undefined without an adapter

 private:
  struct Rows;
  Rows rows_of(const torch::Tensor& indices) const;
  torch::Tensor look_up(const torch::Tensor& indices, const torch::Tensor& table) const;
  torch::Tensor looked_up(const torch::Tensor& indices, bool sums_whole, bool sums_cut) const;

  ProcessGroup* group_ = nullptr;
  std::optional<ShardStyle> style_;
  ShardSpec placement_;
  double adapter_scale_ = 1;
};
TORCH_MODULE(Embedding);

}  // namespace gantry::nn

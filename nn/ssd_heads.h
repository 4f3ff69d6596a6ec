// The heads of Mamba-2 (nn/mixers/ssd.h) as a module with the parameters of the recurrence.
#pragma once

#include <map>
#include <string>

#include <torch/nn/module.h>

#include "gantry/nn/head_exchange.h"
#include "gantry/nn/key_value_cache.h"
#include "gantry/nn/shard_style.h"

namespace gantry::nn {

struct SsdHeadsOptions {
  std::int64_t heads = 1, head_size = 1, groups = 1, state = 1;
  double least_step = 0, largest_step = 1;               // dt is clamped to them after softplus
  double first_initial_step = 0, last_initial_step = 0;  // see initial_step_bias()
};

// Parameters A_log, D and dt_bias, each [heads], initially ln(1, 2, ...), 1, and as the options state. After
// shard(Column): the local heads, and the groups that they read. No communication.
class SsdHeadsImpl : public torch::nn::Module, public Shardable {
 public:
  explicit SsdHeadsImpl(const SsdHeadsOptions& options);

  // The heads and tokens of the exchange: x [B, S, heads * size], b and c [B, S, groups * state], dt [B, S, heads] ->
  // [B, S, heads * size]. Tokens of padding and of other documents have no influence on a token. `state`: receives the
  // state after the last token, and has that of earlier calls; null: none.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& b, const torch::Tensor& c, const torch::Tensor& dt,
                        const HeadExchange& exchange, LayerState* state);
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;

  HeadRange held() const { return {held_.begin, held_.size(), options_.heads}; }
  std::int64_t heads_of_group() const { return options_.heads / options_.groups; }
  std::int64_t local_groups() const;  // the groups that the held heads read
  torch::Tensor a_log, d, dt_bias;

 private:
  // [B, S, groups of `heads` * state] -> [B, S, groups or heads, state], so that equal numbers of heads follow each
  // other in the groups.
  torch::Tensor in_groups(const torch::Tensor& features, const HeadRange& heads) const;

  const SsdHeadsOptions options_;
  Range held_;  // the local heads
};
TORCH_MODULE(SsdHeads);

}  // namespace gantry::nn

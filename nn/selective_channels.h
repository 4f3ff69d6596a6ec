// The channels of Mamba (nn/mixers/selective_scan.h) as a module with the parameters of the recurrence.
#pragma once

#include <torch/nn/module.h>

#include "gantry/nn/head_exchange.h"
#include "gantry/nn/key_value_cache.h"
#include "gantry/nn/shard_style.h"

namespace gantry::nn {

struct SelectiveChannelsOptions {
  std::int64_t channels = 1, state = 1;
  double first_initial_step = 0.001, last_initial_step = 0.1;  // see initial_step_bias()
};

// The inputs of a forward: x and dt [B, S, channels], b and c [B, S, state].
struct SelectedTokens {
  torch::Tensor x, dt, b, c;
};

// Parameters A_log [channels, state], D [channels] and dt_bias [channels], initially ln(1, 2, ...) in each channel, 1,
// and initial_step_bias(). After shard(Column): the local channels. No communication; gradients of b and c are partial
// sums over tp.
class SelectiveChannelsImpl : public torch::nn::Module, public Shardable {
 public:
  explicit SelectiveChannelsImpl(const SelectiveChannelsOptions& options);

  // The inputs are the channels and tokens of the exchange. Returns [B, S, channels]. Tokens of padding and of other
  // documents have no influence on a token. `state`: receives the state after the last token, and has that of earlier
  // calls; null: none.
  torch::Tensor forward(const SelectedTokens& selected, const HeadExchange& exchange, LayerState* state);
  Placements shard(const ShardStyle& style, const ShardAxes& axes) override;

  torch::Tensor a_log, d, dt_bias;

 private:
  const SelectiveChannelsOptions options_;
};
TORCH_MODULE(SelectiveChannels);

}  // namespace gantry::nn

// The projections of latent attention (LatentSpec).
#pragma once

#include "gantry/models/decoder.h"
#include "gantry/nn/prepare_input.h"

namespace gantry::models {

// The heads of this rank, [B, heads, S, features].
struct LatentHeads {
  torch::Tensor query, key, value;
  nn::HeadRange heads;
};

class LatentAttention {
 public:
  // Registers its modules below `root`, a layer, at the paths in `names`.
  LatentAttention(torch::nn::Module& root, const AttentionSpec& spec, const DecoderNames& names, std::int64_t hidden);
  // [B, S, H] -> the heads. `turn` rotates the rotary features: [B, heads, S, features] -> the same shape.
  LatentHeads project(const torch::Tensor& input, const std::function<torch::Tensor(const torch::Tensor&)>& turn);

 private:
  const AttentionSpec spec_;
  nn::Linear narrow_query_{nullptr}, query_{nullptr}, narrow_key_{nullptr}, wide_key_{nullptr};
  DecoderNorm query_norm_, key_norm_;
  nn::EnterHeads rope_key_{nullptr};
};

}  // namespace gantry::models

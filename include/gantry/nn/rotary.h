// Rotary position embedding (Su et al., arXiv 2104.09864) in the variants of Hugging Face's models.
#pragma once

#include <cstdint>

#include "gantry/nn/rotary_options.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// Rotates queries and keys by their positions. Not thread-safe: each rank needs its own instance.
class Rotary {
 public:
  Rotary(std::int64_t head_size, RotaryOptions options);

  // [samples, heads, tokens, head size] -> the same shape. positions: int64 [samples, tokens]; undefined: 0, 1, 2, ...
  // With RotaryOptions::sections, positions can have three rows: [samples, tokens, 3].
  // length: length of the full sequence so far, which dynamic and longrope use; 0: the number of tokens in `heads`.
  torch::Tensor operator()(const torch::Tensor& heads, const torch::Tensor& positions = {}, std::int64_t length = 0);

 private:
  // Returns the frequencies for a sequence of this length: float32 on the host, as in Hugging Face's models.
  torch::Tensor frequencies(std::int64_t length) const;
  // The cosines and sines of `angles` times the attention factor.
  torch::Tensor cosine_of(const torch::Tensor& angles, torch::ScalarType type) const;
  torch::Tensor sine_of(const torch::Tensor& angles, torch::ScalarType type) const;
  // Returns an index of the set of frequencies that this length uses.
  std::int64_t kind_of(std::int64_t length) const;
  void prepare(const torch::Tensor& like, std::int64_t length);
  // The position of each pair of features: [samples, tokens, rotated / 2], or [samples, tokens, 1].
  torch::Tensor positions_of_pairs(const torch::Tensor& positions);
  torch::Tensor turned_to(const torch::Tensor& heads, const torch::Tensor& positions, std::int64_t length);

  RotaryOptions options_;
  double attention_factor_;
  torch::Tensor cosine_, sine_;  // [tokens, rotated / 2] for the longest sequence so far, in the input's dtype
  std::int64_t table_kind_ = -1;
  torch::Tensor frequencies_;  // [rotated / 2], for given positions
  std::int64_t frequencies_kind_ = -1;
  torch::Tensor rows_of_pairs_;  // [rotated / 2], for positions in three rows
};

}  // namespace gantry::nn

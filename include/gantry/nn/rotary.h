// Rotary position embedding (Su et al., arXiv 2104.09864) in the forms of Hugging Face's models.
#pragma once

#include <cstdint>

#include "gantry/nn/rotary_options.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// Turns queries and keys by their positions. Not thread-safe: each rank has its own.
class Rotary {
 public:
  Rotary(std::int64_t head_size, RotaryOptions options);

  // [samples, heads, tokens, head size] -> the same shape. positions: int64 [samples, tokens]; undefined: 0, 1, 2, ...
  // length: tokens of the whole text so far, by which dynamic and longrope choose; 0: the tokens given.
  torch::Tensor operator()(const torch::Tensor& heads, const torch::Tensor& positions = {}, std::int64_t length = 0);

 private:
  // Of the features that turn, for a text of this length: float32 on the host, as Hugging Face's models compute them.
  torch::Tensor frequencies(std::int64_t length) const;
  torch::Tensor cosine_of(const torch::Tensor& angles, torch::ScalarType type) const;
  torch::Tensor sine_of(const torch::Tensor& angles, torch::ScalarType type) const;
  // What the frequencies depend on: texts of one kind have the same.
  std::int64_t kind_of(std::int64_t length) const;
  void prepare(const torch::Tensor& like, std::int64_t length);
  torch::Tensor turned_to(const torch::Tensor& heads, const torch::Tensor& positions, std::int64_t length);

  RotaryOptions options_;
  double attention_factor_;
  torch::Tensor cosine_, sine_;  // [tokens, rotated / 2] of the longest text by now, in its dtype
  std::int64_t table_kind_ = -1;
  torch::Tensor frequencies_;  // [rotated / 2], where positions were given
  std::int64_t frequencies_kind_ = -1;
};

}  // namespace gantry::nn

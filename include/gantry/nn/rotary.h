// Rotary position embedding (Su et al., arXiv 2104.09864) in Llama's form: features i and i + size / 2 turn together.
#pragma once

#include <cstdint>
#include <string>

#include "gantry/tensors/tensor.h"

namespace gantry::nn {

struct RotaryOptions {
  double theta = 10000;
  std::string type = "default";  // default | linear | llama3
  double factor = 1;             // linear, llama3: positions are stretched by it
  // llama3: wavelengths longer than original_positions / low_frequency_factor are stretched wholly, those shorter than
  // original_positions / high_frequency_factor not at all, and those between in part.
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  std::int64_t original_positions = 8192;
};

// Turns queries and keys by their positions. Not thread-safe: each rank has its own.
class Rotary {
 public:
  Rotary(std::int64_t head_size, RotaryOptions options) : head_size_(head_size), options_(std::move(options)) {}

  // [samples, heads, tokens, head size] -> the same shape. positions: int64 [samples, tokens]; undefined: 0, 1, 2, ...
  torch::Tensor operator()(const torch::Tensor& heads, const torch::Tensor& positions = {});

 private:
  void prepare(const torch::Tensor& like);
  torch::Tensor turned_to(const torch::Tensor& heads, const torch::Tensor& positions);

  std::int64_t head_size_;
  RotaryOptions options_;
  torch::Tensor cosine_, sine_;  // [tokens, head size / 2] of the last length, in its dtype
  torch::Tensor frequencies_;    // [head size / 2], where positions were given
};

}  // namespace gantry::nn

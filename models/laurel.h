// A learned augmented residual layer (LAuReL, Menghani et al., arXiv 2411.07501): a low-rank branch next to attention.
#pragma once

#include "gantry/models/decoder.h"

namespace gantry::models {

class Laurel {
 public:
  // Registers its modules below `root`, a layer, at names.laurel.
  Laurel(torch::nn::Module& root, std::int64_t rank, const NormSpec& norm, const DecoderNames& names,
         std::int64_t hidden);
  // input + norm(right(left(input))), [B, S, H] -> the same shape.
  torch::Tensor operator()(const torch::Tensor& input);

 private:
  nn::Linear left_{nullptr}, right_{nullptr};
  DecoderNorm norm_;
};

}  // namespace gantry::models

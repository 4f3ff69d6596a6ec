// Alternating updates (AltUp, Baykal et al., arXiv 2301.13310): layers pass N streams on as one tensor [B, S, N * H]. A
// layer predicts all streams, computes one of them, and corrects all by the result.
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "gantry/models/decoder.h"

namespace gantry::models {

// A matrix whose entries are clamped to [-clip, clip] in training. 0: no clamping. Parameter weight [out, in].
class CoefficientsImpl : public torch::nn::Module {
 public:
  CoefficientsImpl(std::int64_t in, std::int64_t out, double clip);
  torch::Tensor forward(const torch::Tensor& input);
  torch::Tensor weight;

 private:
  double clip_;
};
TORCH_MODULE(Coefficients);

// The streams of one layer. All coefficients of a token depend on one of its streams.
class AltUp {
 public:
  // Registers its modules and its parameter below `root`, a layer, at names.altup.
  AltUp(torch::nn::Module& root, const AltUpSpec& spec, const NormSpec& norm, const DecoderNames& names,
        std::int64_t hidden);
  const AltUpSpec& spec() const { return spec_; }
  // [B, S, N, H] -> the same shape: the streams plus a product with N * N coefficients of each token.
  torch::Tensor predict(const torch::Tensor& streams);
  // predictions [B, S, N, H] and the computed stream [B, S, H] -> [B, S, N, H]: the difference between the computed and
  // the predicted stream is added to each stream, times 1 + a coefficient.
  torch::Tensor correct(const torch::Tensor& predictions, const torch::Tensor& computed);
  // The active stream of [B, S, N, H], times the trained vector if there is one.
  torch::Tensor scaled(const torch::Tensor& streams) const;

 private:
  torch::Tensor modalities(const torch::Tensor& input);

  const AltUpSpec spec_;
  double input_scale_;
  Coefficients correction_{nullptr}, prediction_{nullptr};
  nn::Linear router_{nullptr};
  DecoderNorm router_norm_;
  torch::Tensor output_scale_;
};

// The streams before the first layer and after the last one.
class StreamEnds {
 public:
  // Registers the projections below `root`, a decoder, at names.streams_in and names.streams_out.
  StreamEnds(torch::nn::Module& root, const DecoderSpec& spec);
  // [B, S, H] -> [B, S, N * H]: the input, and its projections with the same magnitude.
  torch::Tensor split(const torch::Tensor& hidden);
  // [B, S, N * H] -> [B, S, H]: the mean of the first stream and of the other ones' projections with its magnitude.
  torch::Tensor merged(const torch::Tensor& streams);

 private:
  std::vector<nn::Linear> in_, out_;
};

}  // namespace gantry::models

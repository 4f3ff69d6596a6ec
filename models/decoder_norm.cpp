#include "gantry/models/decoder.h"
#include "gantry/models/register_at.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

nn::LayerNormParameters parameters_of_norm(const NormSpec& norm) {
  if (!norm.weight) return nn::LayerNormParameters::kNone;
  return norm.bias ? nn::LayerNormParameters::kWeightAndBias : nn::LayerNormParameters::kWeight;
}

}  // namespace

DecoderNorm::DecoderNorm(torch::nn::Module& root, const std::string& path, const NormSpec& spec, std::int64_t size) {
  const nn::NormScale scale = spec.one_plus_weight ? nn::NormScale::kOnePlusWeight : nn::NormScale::kWeight;
  if (spec.kind == NormSpec::Kind::kRms)
    rms_ = register_at(root, path, nn::RmsNorm(size, spec.eps, spec.weight ? scale : nn::NormScale::kOne));
  if (spec.kind == NormSpec::Kind::kLayer)
    layer_ = register_at(root, path, nn::LayerNorm(size, spec.eps, parameters_of_norm(spec), scale));
}

torch::Tensor DecoderNorm::operator()(const torch::Tensor& input) {
  if (rms_) return rms_(input);
  return layer_ ? layer_(input) : input;
}

}  // namespace gantry::models

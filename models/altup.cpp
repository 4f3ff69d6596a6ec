#include "gantry/models/altup.h"

#include <fmt/format.h>

#include "gantry/models/register_at.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

constexpr double kLeastMeanSquare = 1e-5;
constexpr double kTiny = 1e-30;  // keeps the gradient of the root of 0, of a padding token, finite

torch::Tensor wide(const torch::Tensor& tensor) {
  return tensor.to(at::promote_types(tensor.scalar_type(), torch::kFloat32));
}

// The root of the mean square of the features, or of `least` if that is larger.
torch::Tensor magnitude_of(const torch::Tensor& tensor, double least) {
  return wide(tensor).square().mean(-1, /*keepdim=*/true).clamp_min(least).sqrt();
}

torch::Tensor with_magnitude(const torch::Tensor& tensor, const torch::Tensor& magnitude) {
  const torch::Tensor own = magnitude_of(tensor, kLeastMeanSquare);
  return (wide(tensor) * (magnitude / own)).to(tensor.scalar_type());
}

}  // namespace

CoefficientsImpl::CoefficientsImpl(std::int64_t in, std::int64_t out, double clip) : clip_(clip) {
  weight = register_parameter("weight", torch::empty({out, in}));
  torch::nn::init::zeros_(weight);
}

torch::Tensor CoefficientsImpl::forward(const torch::Tensor& input) {
  return at::linear(input, clip_ > 0 && is_training() ? weight.clamp(-clip_, clip_) : weight);
}

AltUp::AltUp(torch::nn::Module& root, const AltUpSpec& spec, const NormSpec& norm, const DecoderNames& names,
             std::int64_t hidden)
    : spec_(spec), input_scale_(static_cast<double>(static_cast<float>(1 / static_cast<double>(hidden)))) {
  const std::int64_t streams = spec.streams;
  correction_ = register_at(root, names.altup + ".correction_coefs", Coefficients(streams, streams, spec.clip));
  prediction_ =
      register_at(root, names.altup + ".prediction_coefs", Coefficients(streams, streams * streams, spec.clip));
  router_ = linear_at(root, names.altup + ".modality_router", hidden, streams, false);
  router_norm_ = DecoderNorm(root, names.altup + ".router_norm", norm, hidden);
  torch::nn::Module& own = *root.named_children()[names.altup];
  output_scale_ = own.register_parameter("correct_output_scale", torch::zeros({hidden}));
}

torch::Tensor AltUp::modalities(const torch::Tensor& input) {
  const torch::Tensor routed = router_(router_norm_(input) * input_scale_);
  return wide(routed).tanh().to(input.scalar_type());
}

torch::Tensor AltUp::predict(const torch::Tensor& streams) {
  const torch::Tensor coefficients =
      prediction_(modalities(streams.select(2, spec_.active))).unflatten(-1, {spec_.streams, spec_.streams});
  return streams + at::matmul(coefficients, streams);
}

torch::Tensor AltUp::correct(const torch::Tensor& predictions, const torch::Tensor& computed) {
  const torch::Tensor factors = correction_(modalities(computed)) + 1;
  const torch::Tensor change = computed - predictions.select(2, spec_.active);
  return predictions + factors.unsqueeze(-1) * change.unsqueeze(2);
}

torch::Tensor AltUp::scaled(const torch::Tensor& streams) const {
  const torch::Tensor active = streams.select(2, spec_.active);
  return spec_.scaled ? active * output_scale_ : active;
}

StreamEnds::StreamEnds(torch::nn::Module& root, const DecoderSpec& spec) {
  for (std::int64_t stream = 1; stream < spec.streams; ++stream) {
    in_.push_back(
        linear_at(root, fmt::format("{}.{}", spec.names.streams_in, stream - 1), spec.hidden, spec.hidden, false));
    out_.push_back(
        linear_at(root, fmt::format("{}.{}", spec.names.streams_out, stream - 1), spec.hidden, spec.hidden, false));
  }
}

torch::Tensor StreamEnds::split(const torch::Tensor& hidden) {
  const torch::Tensor magnitude = magnitude_of(hidden, kTiny);
  std::vector<torch::Tensor> streams = {hidden};
  for (nn::Linear& projection : in_) streams.push_back(with_magnitude(projection(hidden), magnitude));
  return torch::cat(streams, -1);
}

torch::Tensor StreamEnds::merged(const torch::Tensor& streams) {
  const auto parts = streams.chunk(static_cast<std::int64_t>(out_.size()) + 1, -1);
  const torch::Tensor magnitude = magnitude_of(parts[0], kTiny);
  torch::Tensor sum = parts[0];
  for (std::size_t i = 0; i < out_.size(); ++i) sum = sum + with_magnitude(out_[i](parts[i + 1]), magnitude);
  return sum / static_cast<double>(parts.size());
}

}  // namespace gantry::models

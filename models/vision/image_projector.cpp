#include "gantry/models/vision/image_projector.h"

#include "gantry/models/register_at.h"
#include "gantry/nn/activation.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

ImageProjectorImpl::ImageProjectorImpl(const VisionSpec& spec, std::int64_t hidden, double initializer_range)
    : spec_(spec) {
  const torch::NoGradGuard no_grad;
  const std::int64_t size = spec.tower.hidden;
  if (spec.projector == VisionSpec::Projector::kPooled) {
    projection_ = register_parameter("mm_input_projection_weight", torch::empty({size, hidden}));
    torch::nn::init::normal_(projection_, 0, initializer_range);
    norm_ = register_module("mm_soft_emb_norm", nn::RmsNorm(size, spec.tower.eps, nn::NormScale::kOnePlusWeight));
    return;
  }
  first_ = linear_at(*this, "linear_1", size, hidden, spec.projector_bias);
  second_ = linear_at(*this, "linear_2", hidden, hidden, spec.projector_bias);
}

torch::Tensor ImageProjectorImpl::pooled(const torch::Tensor& places) {
  const std::int64_t grid = spec_.grid(), side = spec_.pooled_side, step = grid / side;
  // Averages of squares of step x step patches.
  const torch::Tensor squares = places.reshape({places.size(0), side, step, side, step, places.size(2)});
  return squares.mean({2, 4}).flatten(1, 2);
}

torch::Tensor ImageProjectorImpl::forward(const torch::Tensor& places) {
  if (spec_.projector == VisionSpec::Projector::kPooled) return at::matmul(norm_(pooled(places)), projection_);
  const bool drops_class = spec_.class_token && !spec_.keeps_class_token;
  const torch::Tensor features = drops_class ? places.slice(1, 1) : places;
  return second_(nn::activate(first_(features), spec_.projector_activation));
}

}  // namespace gantry::models

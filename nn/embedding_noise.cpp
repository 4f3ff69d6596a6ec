#include "gantry/nn/embedding_noise.h"

#include <cmath>
#include <fmt/format.h>
#include <numeric>

#include "gantry/core/error.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/kernels/draw.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/philox.h"

namespace gantry::nn {
namespace {

// The place of a part of [samples, tokens, features] in the full tensor, which has `tokens` tokens per sample.
struct NoisePlace {
  std::int64_t sample = 0, token = 0, tokens = 0;
};

torch::Tensor drawn_noise(const torch::Tensor& like, double bound, const kernels::Drawn& key, const NoisePlace& place) {
  const torch::NoGradGuard no_grad;
  torch::Tensor noise = torch::empty(like.sizes(), like.options().requires_grad(false));
  const std::int64_t features = like.size(2), sample = place.tokens * features;
  kernels::Drawn drawn = key;
  drawn.law = kernels::Law::kUniform;
  drawn.a = -bound;
  drawn.b = bound;
  kernels::draw(noise, drawn, place.sample * sample + place.token * features, {sample, features, 1});
  return noise;
}

}  // namespace

EmbeddingNoiseImpl::EmbeddingNoiseImpl(double alpha) : alpha_(alpha) {}

Placements EmbeddingNoiseImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  if (std::holds_alternative<FullSequence>(style)) return {};
  const auto* sequence = std::get_if<SequenceParallel>(&style);
  if (!sequence || sequence->dim != 1) refuse_style("noise on embeddings", style, "SequenceParallel{}");
  if (axes.ranks() > 1) group_ = &axes.group();
  return {};
}

torch::Tensor EmbeddingNoiseImpl::forward(const torch::Tensor& input) {
  if (!is_training() || alpha_ == 0) return input;
  const RandomContext context = random_context();
  NoisePlace place{.sample = context.first_sample, .token = 0, .tokens = input.size(1)};
  if (group_) {
    const Sizes sizes = shard_sizes(input.size(1), *group_);
    place.token = std::accumulate(sizes.begin(), sizes.begin() + group_->rank(), std::int64_t{0});
    place.tokens = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  }
  const auto& stage = forward_now().stage;
  const auto* part = stage && stage->sequence() ? &*stage->sequence() : nullptr;
  const std::int64_t first = place.token;  // among those that this rank's group has
  if (part) place.tokens = part->shard.tokens;
  const std::int64_t counted = place.tokens;
  const double bound = alpha_ / std::sqrt(static_cast<double>(counted * input.size(2)));
  const kernels::Drawn key{.seed = context.seed, .stream = philox_stream(name_in_model_, context.step)};
  if (!part) return input + drawn_noise(input, bound, key, place);
  return input + run_by_run(input, 1, *part, first, [&](const torch::Tensor& piece, std::int64_t token) {
           place.token = token;
           return drawn_noise(piece, bound, key, place);
         });
}

}  // namespace gantry::nn

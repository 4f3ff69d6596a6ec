#include "gantry/models/sentence_embedding.h"

#include <limits>
#include <vector>

#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

constexpr double kRankingScale = 20;

// The tokens [B, S, H] of `hidden` at `places` [B].
torch::Tensor tokens_at(const torch::Tensor& hidden, const torch::Tensor& places) {
  return hidden.gather(1, places.view({-1, 1, 1}).expand({-1, 1, hidden.size(2)})).squeeze(1);
}

// `counted`: 1 for each token that is not padding, [B, S, 1]. Half precision is summed in float32.
torch::Tensor mean_of_tokens(const torch::Tensor& hidden, const torch::Tensor& counted, bool by_root) {
  const bool is_half = hidden.scalar_type() == torch::kHalf || hidden.scalar_type() == torch::kBFloat16;
  const auto type = is_half ? torch::kFloat32 : hidden.scalar_type();
  const torch::Tensor count = counted.sum(1, /*keepdim=*/false, type).clamp_min(1e-9);
  return ((hidden * counted).sum(1, /*keepdim=*/false, type) / (by_root ? count.sqrt() : count))
      .to(hidden.scalar_type());
}

torch::Tensor pooled_by(const std::string& mode, const torch::Tensor& hidden, const torch::Tensor& keep) {
  const torch::Tensor counted = keep.unsqueeze(-1).to(hidden.scalar_type());
  if (mode == "cls") return tokens_at(hidden, keep.to(torch::kInt64).argmax(1));
  if (mode == "max")
    return std::get<0>(hidden.masked_fill(~keep.unsqueeze(-1), -std::numeric_limits<double>::infinity()).max(1));
  if (mode == "lasttoken") {
    const torch::Tensor behind = keep.flip(1).to(torch::kInt64).argmax(1);
    return tokens_at(hidden * counted, hidden.size(1) - 1 - behind);
  }
  return mean_of_tokens(hidden, counted, mode == "mean_sqrt_len_tokens");
}

}  // namespace

torch::Tensor sentence_embedding(const torch::Tensor& hidden, const torch::Tensor& keep, const SentencePooling& how) {
  const torch::Tensor kept =
      keep.defined() ? keep : torch::ones({hidden.size(0), hidden.size(1)}, hidden.options().dtype(torch::kBool));
  std::vector<torch::Tensor> pooled;
  for (const std::string& mode : how.modes) pooled.push_back(pooled_by(mode, hidden, kept));
  const torch::Tensor made = torch::cat(pooled, -1);
  return how.normalizes ? unit_length(made) : made;
}

torch::Tensor unit_length(const torch::Tensor& rows) {
  return rows / at::linalg_vector_norm(rows, 2, {-1}, /*keepdim=*/true).clamp_min(1e-12);
}

torch::Tensor ranking_losses(const torch::Tensor& own, const torch::Tensor& all, std::int64_t first) {
  // The second texts of all samples, and then their further ones.
  const torch::Tensor candidates = all.slice(1, 1).transpose(0, 1).flatten(0, 1);
  const torch::Tensor logits = kRankingScale * at::matmul(own.select(1, 0), candidates.t());
  const torch::Tensor right =
      torch::arange(first, first + own.size(0), torch::TensorOptions(torch::kInt64).device(own.device()));
  return -logits.log_softmax(-1).gather(1, right.unsqueeze(1)).squeeze(1);
}

}  // namespace gantry::models

#include "gantry/models/latent_attention.h"

#include "gantry/models/register_at.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

// Returns heads [samples, heads, tokens, size] of two parts, with the heads of a token side by side in memory.
// Attention returns results in the order of its queries, so that merging the heads copies nothing.
torch::Tensor joined(const torch::Tensor& plain, const torch::Tensor& turned) {
  return torch::cat({plain.transpose(1, 2), turned.transpose(1, 2)}, -1).transpose(1, 2);
}

}  // namespace

LatentAttention::LatentAttention(torch::nn::Module& root, const AttentionSpec& spec, const DecoderNames& names,
                                 std::int64_t hidden)
    : spec_(spec) {
  const LatentSpec& latent = *spec.latent;
  const std::int64_t queries = spec.heads * spec.head_size;
  if (latent.query_rank > 0) {
    narrow_query_ = linear_at(root, names.q_a_proj, hidden, latent.query_rank, latent.bias);
    query_norm_ = DecoderNorm(root, names.q_a_norm, latent.norm, latent.query_rank);
    query_ = linear_at(root, names.q_b_proj, latent.query_rank, queries, false);
  } else {
    query_ = linear_at(root, names.query, hidden, queries, false);
  }
  narrow_key_ = linear_at(root, names.kv_a_proj, hidden, latent.key_rank + latent.rope, latent.bias);
  key_norm_ = DecoderNorm(root, names.kv_a_norm, latent.norm, latent.key_rank);
  wide_key_ = linear_at(root, names.kv_b_proj, latent.key_rank, spec.heads * (latent.plain + latent.value), false);
  rope_key_ = register_at(root, names.rope_key, nn::EnterHeads());
}

LatentHeads LatentAttention::project(const torch::Tensor& input,
                                     const std::function<torch::Tensor(const torch::Tensor&)>& turn) {
  const LatentSpec& latent = *spec_.latent;
  LatentHeads made;
  made.heads = nn::held_heads(query_, spec_.head_size, spec_.heads);
  const torch::Tensor query = query_(narrow_query_ ? query_norm_(narrow_query_(input)) : input);
  const auto queries = nn::split_heads(query, made.heads.count).split_with_sizes({latent.plain, latent.rope}, -1);
  made.query = joined(queries[0], turn(queries[1]));
  const auto narrow = narrow_key_(input).split_with_sizes({latent.key_rank, latent.rope}, -1);
  const torch::Tensor wide = wide_key_(key_norm_(narrow[0]));
  const auto keys = nn::split_heads(wide, made.heads.count).split_with_sizes({latent.plain, latent.value}, -1);
  const torch::Tensor turned = turn(rope_key_(narrow[1]).unsqueeze(1));
  made.key = joined(keys[0], turned.expand({-1, made.heads.count, -1, -1}));
  made.value = keys[1];
  return made;
}

}  // namespace gantry::models

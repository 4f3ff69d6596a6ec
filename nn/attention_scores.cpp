#include "gantry/nn/attention_scores.h"

#include <cmath>

#include "gantry/tensors/kernels/add_rows.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

double scale_of_scores(const AttentionOptions& options, const torch::Tensor& query) {
  return options.scale > 0 ? options.scale : 1 / std::sqrt(static_cast<double>(query.size(3)));
}

ByKeyHead::ByKeyHead(const HeadRange& heads, const HeadRange& key_heads)
    : group_(heads.total / key_heads.total),
      key_heads_(key_heads.count),
      has_all_heads_(heads.first == key_heads.first * group_ && heads.count == key_heads.count * group_) {
  for (std::int64_t head = heads.first; head < heads.first + heads.count; ++head)
    key_of_head_.push_back(head / group_ - key_heads.first);
}

torch::Tensor ByKeyHead::index(const torch::Device& device) const {
  return torch::tensor(key_of_head_, torch::TensorOptions(torch::kInt64).device(device));
}

// The rows of the query heads of a KV head, one head after the other.
torch::Tensor ByKeyHead::folded(const torch::Tensor& of_heads) const {
  return of_heads.reshape({of_heads.size(0), key_heads_, group_ * of_heads.size(2), of_heads.size(3)});
}

torch::Tensor ByKeyHead::product(const torch::Tensor& of_heads, const torch::Tensor& of_keys) const {
  if (!is_grouped()) return at::matmul(of_heads, repeated(of_keys));
  return at::matmul(folded(of_heads), of_keys)
      .view({of_heads.size(0), of_heads.size(1), of_heads.size(2), of_keys.size(3)});
}

torch::Tensor ByKeyHead::turned_product(const torch::Tensor& of_heads, const torch::Tensor& with) const {
  if (!is_grouped()) return summed(at::matmul(of_heads.transpose(-2, -1), with));
  return at::matmul(folded(of_heads).transpose(-2, -1), folded(with));
}

torch::Tensor ByKeyHead::repeated(const torch::Tensor& of_keys) const {
  if (group_ == 1) return of_keys;
  return has_all_heads_ ? of_keys.repeat_interleave(group_, 1) : of_keys.index_select(1, index(of_keys.device()));
}

torch::Tensor ByKeyHead::summed(const torch::Tensor& of_heads) const {
  if (group_ == 1) return of_heads;
  const std::int64_t heads = of_heads.size(1), of_each = of_heads.numel() / heads;
  torch::Tensor sums = torch::zeros({key_heads_, of_each}, of_heads.options());
  kernels::add_rows(sums, index(of_heads.device()), of_heads.transpose(0, 1).reshape({heads, of_each}));
  return sums.view({key_heads_, of_heads.size(0), of_heads.size(2), of_heads.size(3)}).transpose(0, 1).contiguous();
}

Scores scores_of(const torch::Tensor& query, const torch::Tensor& key, const ByKeyHead& by,
                 const AttentionOptions& options, const torch::Tensor& places) {
  Scores scores{.values = by.product(query * scale_of_scores(options, query), key.transpose(-2, -1)), .bent = {}};
  if (options.slopes.defined())
    scores.values = scores.values + (options.slopes.unsqueeze(1) * places).unsqueeze(1).to(scores.values.scalar_type());
  if (options.bias.defined()) scores.values = scores.values + options.bias.to(scores.values.scalar_type());
  if (options.soft_cap > 0) {
    scores.bent = (scores.values / options.soft_cap).tanh();
    scores.values = scores.bent * options.soft_cap;
  }
  return scores;
}

}  // namespace gantry::nn

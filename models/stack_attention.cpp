#include "gantry/models/stack_attention.h"

#include "gantry/models/register_at.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

StackAttention::StackAttention(torch::nn::Module& layer, const std::string& path, const StackAttentionSizes& sizes)
    : heads_(sizes.heads), size_(sizes.width / sizes.heads) {
  query_ = linear_at(layer, path + ".q_proj", sizes.width, sizes.width, true);
  key_ = linear_at(layer, path + ".k_proj", sizes.width, sizes.width, sizes.key_bias);
  value_ = linear_at(layer, path + ".v_proj", sizes.width, sizes.width, true);
  output_ = linear_at(layer, path + ".out_proj", sizes.width, sizes.width, true);
  dropout_ = register_at(layer, path + ".dropout", nn::Dropout(sizes.weights_dropout));
  output_dropout_ = register_at(layer, path + ".output_dropout", nn::Dropout(sizes.output_dropout));
}

torch::Tensor StackAttention::operator()(const torch::Tensor& hidden, const torch::Tensor& read,
                                         const nn::AttentionOptions& options) {
  const nn::HeadRange held = nn::held_heads(query_, size_, heads_);
  std::vector<torch::Tensor> parts;
  if (hidden.is_same(read)) {
    parts = nn::together(hidden, {query_, key_, value_});
  } else {
    parts = {query_(hidden)};
    const torch::Tensor none = parts[0].narrow(1, 0, 0);  // the cache has the keys and values
    const auto others = read.defined() ? nn::together(read, {key_, value_}) : std::vector<torch::Tensor>{none, none};
    parts.insert(parts.end(), others.begin(), others.end());
  }
  const auto by_head = [&](int part) { return nn::split_heads(parts[part], held.count); };
  const torch::Tensor mixed = nn::attention(by_head(0), by_head(1), by_head(2), held, held, options, *dropout_);
  return output_dropout_(output_(nn::merge_heads(mixed)));
}

}  // namespace gantry::models

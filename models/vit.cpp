#include "gantry/models/vit.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/models/register_at.h"
#include "gantry/nn/activation.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

// The initial weights of Hugging Face's ViT, whose normal distributions are not truncated here.
void initialise_vit(torch::nn::Module& model, double range) {
  const torch::NoGradGuard no_grad;
  for (auto& item : model.named_parameters()) {
    const std::string& name = item.key();
    if (name.find("norm") != std::string::npos) continue;
    if (name.ends_with("bias"))
      torch::nn::init::zeros_(item.value());
    else
      torch::nn::init::normal_(item.value(), 0, range);
  }
}

}  // namespace

VitEmbeddingsImpl::VitEmbeddingsImpl(const VitConfig& config) : patch_(config.patch_size) {
  cls_token = register_parameter("cls_token", torch::empty({1, 1, config.hidden_size}));
  position_embeddings =
      register_parameter("position_embeddings", torch::empty({1, config.tokens(), config.hidden_size}));
  auto projection = register_at(*this, "patch_embeddings.projection", std::make_shared<torch::nn::Module>());
  weight =
      projection->register_parameter("weight", torch::empty({config.hidden_size, config.num_channels, patch_, patch_}));
  bias = projection->register_parameter("bias", torch::empty({config.hidden_size}));
  dropout = register_module("dropout", nn::Dropout(config.hidden_dropout_prob));
}

torch::Tensor VitEmbeddingsImpl::forward(const torch::Tensor& pixels,
                                         const std::shared_ptr<const nn::SequencePart>& part) {
  const torch::Tensor patches =
      at::conv2d(pixels.to(weight.scalar_type()), weight, bias, /*stride=*/patch_).flatten(2).transpose(1, 2);
  const torch::Tensor tokens = torch::cat({cls_token.expand({patches.size(0), 1, patches.size(2)}), patches}, 1);
  return dropout(nn::own_tokens(tokens + position_embeddings, part));
}

VitLayerImpl::VitLayerImpl(const VitConfig& config)
    : heads_(config.num_attention_heads),
      head_size_(config.hidden_size / config.num_attention_heads),
      activation_(config.hidden_act) {
  const std::int64_t hidden = config.hidden_size, wide = config.intermediate_size;
  before_ = register_module("layernorm_before", nn::LayerNorm(hidden, config.layer_norm_eps));
  query_ = linear_at(*this, "attention.query", hidden, hidden, config.qkv_bias);
  key_ = linear_at(*this, "attention.key", hidden, hidden, config.qkv_bias);
  value_ = linear_at(*this, "attention.value", hidden, hidden, config.qkv_bias);
  attention_dropout_ = register_at(*this, "attention.dropout", nn::Dropout(config.attention_probs_dropout_prob));
  output_ = linear_at(*this, "attention.output", hidden, hidden, true);
  output_dropout_ = register_at(*this, "attention.output_dropout", nn::Dropout(config.hidden_dropout_prob));
  after_ = register_module("layernorm_after", nn::LayerNorm(hidden, config.layer_norm_eps));
  up_ = linear_at(*this, "intermediate", hidden, wide, true);
  down_ = linear_at(*this, "output", wide, hidden, true);
  mlp_dropout_ = register_module("dropout", nn::Dropout(config.hidden_dropout_prob));
}

torch::Tensor VitLayerImpl::attend(const torch::Tensor& input, const nn::AttentionOptions& attention) {
  const nn::HeadRange heads = nn::held_heads(query_, head_size_, heads_);
  const auto parts = nn::together(input, {query_, key_, value_});
  const auto by_head = [&](int part) { return nn::split_heads(parts[part], heads.count); };
  const torch::Tensor mixed =
      nn::attention(by_head(0), by_head(1), by_head(2), heads, heads, attention, *attention_dropout_);
  return output_dropout_(output_(nn::merge_heads(mixed)));
}

LayerParts VitLayerImpl::parts(const nn::AttentionOptions& attention) {
  return {{"attention",
           [this, attention](const torch::Tensor& hidden) { return hidden + attend(before_(hidden), attention); }},
          {"mlp", [this](const torch::Tensor& hidden) {
             return hidden + mlp_dropout_(down_(nn::activate(up_(after_(hidden)), activation_)));
           }}};
}

VitImpl::VitImpl(const VitConfig& config) : config(config) {
  embeddings_ = register_module("embeddings", VitEmbeddings(config));
  enter_ = register_module("enter", nn::PrepareInput());
  layers_ = register_module("layers", torch::nn::ModuleList());
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) layers_->push_back(VitLayer(config));
  norm_ = register_module("layernorm", nn::LayerNorm(config.hidden_size, config.layer_norm_eps));
  full_sequence_ = register_module("full_sequence", nn::PrepareInput());
  classifier_ = register_module("classifier", nn::Linear(config.hidden_size, config.num_labels));
  initialise_vit(*this, config.initializer_range);
}

torch::Tensor VitImpl::embed(const torch::Tensor& pixels, const std::shared_ptr<const nn::SequencePart>& part) {
  const std::int64_t size = config.image_size;
  if (pixels.dim() != 4 || pixels.size(1) != config.num_channels || pixels.size(2) != size || pixels.size(3) != size)
    throw InputError(
        {"pixel_values", "the tensor is " + describe(pixels),
         fmt::format("[samples, {}, {}, {}], the model's channels and image_size", config.num_channels, size, size),
         "resize the images"});
  return enter_(embeddings_(pixels, part));
}

TensorDict VitImpl::stage_forward(const StageContext& stage, const TensorDict& input) {
  const auto part = stage.tokens().sequence;
  Forward known = forward_now();  // a batch of images does not say how many tokens the ranks of tp have shards of
  if (known.random) known.random->sequence_length = part ? part->shard.size(part->group->rank()) : config.tokens();
  const ForwardScope scope(known);
  torch::Tensor hidden = stage.is_first() ? embed(input.at("pixel_values"), part) : input.at("hidden");
  hidden =
      stage.run_layers(hidden, [&](int index) { return layers_->at<VitLayerImpl>(index).parts({.sequence = part}); });
  if (!stage.is_last()) return {{"hidden", hidden}};
  const torch::Tensor tokens = full_sequence_(norm_(hidden));
  return {{"logits", classifier_((part ? nn::first_token(tokens, *part) : tokens).select(1, 0))}};
}

TensorDict VitImpl::forward(const TensorDict& inputs) {
  return stage_forward(*StageContext::full(layers_->size(), inputs), inputs);
}

}  // namespace gantry::models

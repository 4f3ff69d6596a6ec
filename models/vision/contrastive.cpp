#include "gantry/models/vision/contrastive.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/models/register_at.h"
#include "gantry/models/text_rows.h"
#include "gantry/models/vision/tower_layer.h"
#include "gantry/nn/activation.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

constexpr double kInitialRange = 0.02;
constexpr std::int64_t kOldEndToken = 2;

// Runs this stage's layers of a list.
torch::Tensor run_layers_of(const StageContext& stage, const torch::nn::ModuleList& layers, const torch::Tensor& hidden,
                            const nn::AttentionOptions& attention, int list) {
  const auto parts = [&](int index) {
    auto layer = layers->ptr<TowerLayerImpl>(index);
    return LayerParts{
        {"", [layer, attention](const torch::Tensor& input) { return layer->forward(input, attention); }}};
  };
  return stage.run_layers(TensorDict{{"hidden", hidden}}, parts, list).at("hidden");
}

torch::Tensor normalised_rows(const torch::Tensor& rows) { return rows / rows.pow(2).sum(-1, /*keepdim=*/true).sqrt(); }

// The place of the first end token of each text, [B]; for files with the old number, of the largest token.
torch::Tensor end_places(const torch::Tensor& input_ids, std::int64_t end_token) {
  if (end_token == kOldEndToken) return input_ids.argmax(1);
  return (input_ids == end_token).to(torch::kInt64).argmax(1);
}

}  // namespace

TextTowerImpl::TextTowerImpl(const ContrastiveSpec& spec) : spec_(spec) {
  const torch::NoGradGuard no_grad;
  const std::int64_t size = spec.text.hidden;
  tokens_ = register_at(*this, "embeddings.token_embedding",
                        nn::Embedding(torch::nn::EmbeddingOptions(spec.vocabulary, size)));
  torch::nn::init::normal_(tokens_->weight, 0, kInitialRange);
  auto positions = register_at(*this, "embeddings.position_embedding", std::make_shared<torch::nn::Module>());
  positions_ = positions->register_parameter("weight", torch::empty({spec.positions, size}));
  torch::nn::init::normal_(positions_, 0, kInitialRange);
  layers_ = register_at(*this, "encoder.layers", torch::nn::ModuleList());
  for (std::int64_t layer = 0; layer < spec.text.layers; ++layer) layers_->push_back(TowerLayer(spec.text));
  norm_ = register_module("final_layer_norm", nn::LayerNorm(size, spec.text.eps));
  if (!spec.is_clip) head_ = register_module("head", nn::Linear(size, spec.width));
}

torch::Tensor TextTowerImpl::embed(const torch::Tensor& input_ids) {
  const std::int64_t tokens = input_ids.dim() == 2 ? input_ids.size(1) : 0;
  if (tokens == 0 || tokens > spec_.positions)
    throw InputError({"input_ids", "the tensor is " + describe(input_ids),
                      fmt::format("[samples, tokens] of at most {} tokens", spec_.positions), "shorten the texts"});
  return tokens_(input_ids) + positions_.narrow(0, 0, tokens);
}

torch::Tensor TextTowerImpl::pooled(const torch::Tensor& hidden, const torch::Tensor& input_ids) {
  const torch::Tensor normed = norm_(hidden);
  if (!spec_.is_clip) return head_(normed.select(1, normed.size(1) - 1));
  const torch::Tensor places = end_places(input_ids, spec_.end_token).view({-1, 1, 1}).expand({-1, 1, normed.size(2)});
  return normed.gather(1, places).squeeze(1);
}

ImageHeadImpl::ImageHeadImpl(const TowerSpec& tower) : tower_(tower) {
  const torch::NoGradGuard no_grad;
  const std::int64_t size = tower.hidden;
  probe_ = register_parameter("probe", torch::empty({1, 1, size}));
  auto attention = register_module("attention", std::make_shared<torch::nn::Module>());
  weight_ = attention->register_parameter("in_proj_weight", torch::empty({3 * size, size}));
  bias_ = attention->register_parameter("in_proj_bias", torch::empty({3 * size}));
  for (const torch::Tensor& drawn : {probe_, weight_}) torch::nn::init::normal_(drawn, 0, kInitialRange);
  torch::nn::init::zeros_(bias_);
  output_ = linear_at(*this, "attention.out_proj", size, size, true);
  norm_ = register_module("layernorm", nn::LayerNorm(size, tower.eps));
  up_ = linear_at(*this, "mlp.fc1", size, tower.width, true);
  down_ = linear_at(*this, "mlp.fc2", tower.width, size, true);
  dropout_ = register_module("dropout", nn::Dropout(0.0));
}

torch::Tensor ImageHeadImpl::forward(const torch::Tensor& places) {
  const std::int64_t size = tower_.hidden;
  const auto rows = [&](const torch::Tensor& input, std::int64_t first, std::int64_t count) {
    return torch::linear(input, weight_.narrow(0, first, count), bias_.narrow(0, first, count));
  };
  const torch::Tensor query = rows(probe_.expand({places.size(0), 1, size}), 0, size);
  const auto pair = rows(places, size, 2 * size).chunk(2, -1);
  const nn::HeadRange heads{0, tower_.heads, tower_.heads};
  const torch::Tensor mixed = nn::attention(nn::split_heads(query, heads.count), nn::split_heads(pair[0], heads.count),
                                            nn::split_heads(pair[1], heads.count), heads, heads, {}, *dropout_);
  const torch::Tensor attended = output_(nn::merge_heads(mixed));
  return (attended + down_(nn::activate(up_(norm_(attended)), tower_.activation))).select(1, 0);
}

ContrastiveImpl::ContrastiveImpl(const ContrastiveSpec& spec) : spec(spec) {
  const torch::NoGradGuard no_grad;
  scale_ = register_parameter("logit_scale", torch::empty({1}));
  torch::nn::init::constant_(scale_, spec.initial_scale);
  if (!spec.is_clip) bias_ = torch::nn::init::zeros_(register_parameter("logit_bias", torch::empty({1})));
  text_ = register_module("text_model", TextTower(spec));
  vision_ = register_module("vision_model", VisionTower(spec.vision, kInitialRange));
  if (!spec.is_clip) {
    head_ = register_at(*this, "vision_model.head", ImageHead(spec.vision.tower));
  } else {
    text_projection_ = linear_at(*this, "text_projection", spec.text.hidden, spec.width, false);
    visual_projection_ = linear_at(*this, "visual_projection", spec.vision.tower.hidden, spec.width, false);
  }
  samples_ = register_module(kSamples, nn::GatherSamples());
  for (const auto& item : named_modules("", /*include_self=*/false))
    if (auto* linear = dynamic_cast<nn::LinearImpl*>(item.value().get())) {
      torch::nn::init::normal_(linear->weight, 0, kInitialRange);
      if (linear->bias.defined()) torch::nn::init::zeros_(linear->bias);
    }
}

torch::Tensor ContrastiveImpl::text_result(const StageContext& stage, const TensorDict& input) {
  const torch::Tensor& ids = input.at("input_ids");
  const nn::AttentionOptions attention{.causal = spec.is_clip, .keep = stage.tokens().keep};
  const torch::Tensor hidden = run_layers_of(stage, text_->layers(), text_->embed(ids), attention, 0);
  const torch::Tensor pooled = text_->pooled(hidden, ids);
  return normalised_rows(text_projection_ ? text_projection_(pooled) : pooled);
}

torch::Tensor ContrastiveImpl::image_result(const StageContext& stage, const torch::Tensor& pixels) {
  const std::int64_t size = spec.vision.image_size, channels = spec.vision.channels;
  if (pixels.dim() != 4 || pixels.size(1) != channels || pixels.size(2) != size || pixels.size(3) != size)
    throw InputError({"pixel_values", "the tensor is " + describe(pixels),
                      fmt::format("[samples, {0}, {1}, {1}], the model's channels and image_size", channels, size),
                      "resize the images"});
  const torch::Tensor places = vision_->normed(run_layers_of(stage, vision_->layers(), vision_->embed(pixels), {}, 1));
  return normalised_rows(head_ ? head_(places) : visual_projection_(places.select(1, 0)));
}

// One number for each sample of this replica.
torch::Tensor ContrastiveImpl::losses(const torch::Tensor& per_image, const torch::Tensor& per_text,
                                      std::int64_t first) const {
  const torch::Tensor own =
      torch::arange(first, first + per_text.size(0), torch::TensorOptions(torch::kInt64).device(per_text.device()));
  if (spec.is_clip) {
    const auto softmax = [&](const torch::Tensor& logits) {
      return -logits.log_softmax(-1).gather(1, own.unsqueeze(1)).squeeze(1);
    };
    return (softmax(per_image) + softmax(per_text)) / 2;
  }
  const torch::Tensor signs = torch::full_like(per_text, -1).scatter(1, own.unsqueeze(1), 1);
  return -torch::log_sigmoid(signs * per_text).sum(1);
}

TensorDict ContrastiveImpl::stage_forward(const StageContext& stage, const TensorDict& input) {
  const torch::Tensor text = text_result(stage, input), image = image_result(stage, input.at("pixel_values"));
  // One message for both: the order of messages in a backward is then that of the graph.
  const auto [all, first] = samples_->forward(torch::cat({image, text}, 1));
  const auto both = all.chunk(2, 1);
  const auto logits = [&](const torch::Tensor& own, const torch::Tensor& others) {
    const torch::Tensor scaled = at::matmul(own, others.t()) * scale_.exp();
    return bias_.defined() ? scaled + bias_ : scaled;
  };
  const torch::Tensor per_image = logits(image, both[1]), per_text = logits(text, both[0]);
  return {{"image_embeds", image},
          {"text_embeds", text},
          {"logits_per_image", per_image},
          {"logits_per_text", per_text},
          {"losses", losses(per_image, per_text, first)}};
}

TensorDict ContrastiveImpl::forward(const TensorDict& inputs) {
  const std::vector<int> lists = {static_cast<int>(text_->layers()->size()),
                                  static_cast<int>(vision_->layers()->size())};
  return stage_forward(*StageContext::full(lists, inputs), inputs);
}

}  // namespace gantry::models

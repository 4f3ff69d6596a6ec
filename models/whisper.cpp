#include "gantry/models/whisper.h"

#include <cmath>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/models/encoder_decoder.h"
#include "gantry/models/register_at.h"
#include "gantry/nn/activation.h"
#include "gantry/nn/deferred_logits.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/nn/stream_scope.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

constexpr std::int64_t kStepsPerToken = 2;  // the stride of the second convolution

// Sines followed by cosines, of frequencies from 1 to 1 / 10000.
torch::Tensor sinusoids(std::int64_t positions, std::int64_t features) {
  const std::int64_t half = features / 2;
  const auto real = torch::TensorOptions(torch::kFloat32);
  const double step = std::log(10000.0) / static_cast<double>(std::max<std::int64_t>(half - 1, 1));
  const torch::Tensor frequencies = (torch::arange(half, real) * -step).exp();
  const torch::Tensor angles = torch::arange(positions, real).unsqueeze(1) * frequencies.unsqueeze(0);
  return torch::cat({angles.sin(), angles.cos()}, 1);
}

}  // namespace

WhisperConvolutionImpl::WhisperConvolutionImpl(std::int64_t in, std::int64_t out, std::int64_t stride)
    : stride_(stride) {
  weight = register_parameter("weight", torch::empty({out, in, 3}));
  bias = register_parameter("bias", torch::empty({out}));
}

torch::Tensor WhisperConvolutionImpl::forward(const torch::Tensor& input) const {
  return torch::gelu(at::conv1d(input, weight, bias, stride_, /*padding=*/1));
}

WhisperLayerImpl::WhisperLayerImpl(const WhisperConfig& config, const WhisperLayerSizes& sizes)
    : activation_(config.activation_function) {
  const StackAttentionSizes attention{sizes.heads, config.d_model, /*key_bias=*/false, config.attention_dropout,
                                      config.dropout};
  self_.emplace(*this, "self_attn", attention);
  before_self_ = register_module("self_attn_layer_norm", nn::LayerNorm(config.d_model));
  if (sizes.is_decoder) {
    cross_.emplace(*this, "encoder_attn", attention);
    before_cross_ = register_module("encoder_attn_layer_norm", nn::LayerNorm(config.d_model));
  }
  up_ = linear_at(*this, "fc1", config.d_model, sizes.width, true);
  inner_dropout_ = register_module("activation_dropout", nn::Dropout(config.activation_dropout));
  down_ = linear_at(*this, "fc2", sizes.width, config.d_model, true);
  mlp_dropout_ = register_module("dropout", nn::Dropout(config.dropout));
  before_mlp_ = register_module("final_layer_norm", nn::LayerNorm(config.d_model));
}

torch::Tensor WhisperLayerImpl::mlp(const torch::Tensor& input) {
  const torch::Tensor wide = nn::activate(up_(input), activation_);
  return mlp_dropout_(down_(dropped_columns(inner_dropout_, wide, up_)));
}

LayerParts WhisperLayerImpl::parts(const nn::AttentionOptions& self, const nn::AttentionOptions& cross) {
  using Run = LayerPart::Run;
  LayerParts parts;
  parts.emplace_back("attention", Run([this, self](const TensorDict& state) -> TensorDict {
                       const torch::Tensor &hidden = state.at("hidden"), normed = before_self_(hidden);
                       return {{"hidden", hidden + (*self_)(normed, normed, self)}};
                     }));
  if (cross_)
    parts.emplace_back("cross", Run([this, cross](const TensorDict& state) -> TensorDict {
                         const torch::Tensor& hidden = state.at("hidden");
                         return {{"hidden", hidden + (*cross_)(before_cross_(hidden), state.get("encoded"), cross)}};
                       }));
  parts.emplace_back("mlp", Run([this](const TensorDict& state) -> TensorDict {
                       const torch::Tensor& hidden = state.at("hidden");
                       return {{"hidden", hidden + mlp(before_mlp_(hidden))}};
                     }));
  return parts;
}

WhisperImpl::WhisperImpl(const WhisperConfig& config) : config(config) {
  make_encoder();
  make_decoder();
  head_ = linear_at(*this, "proj_out", config.d_model, config.vocab_size, false);
  initialise();
  if (config.tie_word_embeddings) head_->tie_weight(tokens_->weight);
}

void WhisperImpl::make_encoder() {
  const std::int64_t width = config.d_model;
  first_ = register_at(*this, "encoder.conv1", WhisperConvolution(config.num_mel_bins, width, 1));
  second_ = register_at(*this, "encoder.conv2", WhisperConvolution(width, width, kStepsPerToken));
  auto positions = register_at(*this, "encoder.embed_positions", std::make_shared<torch::nn::Module>());
  sound_positions_ = positions->register_parameter("weight", torch::empty({config.max_source_positions, width}),
                                                   /*requires_grad=*/false);
  sound_dropout_ = register_at(*this, "encoder.dropout", nn::Dropout(config.dropout));
  enter_ = register_at(*this, "encoder.enter", nn::PrepareInput());
  encoder_layers_ = register_at(*this, "encoder.layers", torch::nn::ModuleList());
  for (std::int64_t layer = 0; layer < config.encoder_layers; ++layer)
    encoder_layers_->push_back(
        WhisperLayer(config, WhisperLayerSizes{config.encoder_attention_heads, config.encoder_ffn_dim, false}));
  encoder_norm_ = register_at(*this, "encoder.layer_norm", nn::LayerNorm(width));
}

void WhisperImpl::make_decoder() {
  const std::int64_t width = config.d_model;
  tokens_ = register_at(
      *this, "decoder.embed_tokens",
      nn::Embedding(torch::nn::EmbeddingOptions(config.vocab_size, width).padding_idx(config.pad_token_id)));
  positions_ = register_at(*this, "decoder.embed_positions", nn::Embedding(config.max_target_positions, width));
  token_dropout_ = register_at(*this, "decoder.dropout", nn::Dropout(config.dropout));
  decoder_layers_ = register_at(*this, "decoder.layers", torch::nn::ModuleList());
  for (std::int64_t layer = 0; layer < config.decoder_layers; ++layer)
    decoder_layers_->push_back(
        WhisperLayer(config, WhisperLayerSizes{config.decoder_attention_heads, config.decoder_ffn_dim, true}));
  decoder_norm_ = register_at(*this, "decoder.layer_norm", nn::LayerNorm(width));
}

// The initial weights of Hugging Face's Whisper.
void WhisperImpl::initialise() {
  const torch::NoGradGuard no_grad;
  for (auto& item : named_parameters()) {
    const std::string& name = item.key();
    if (name.find("layer_norm") != std::string::npos) continue;
    if (name == "encoder.embed_positions.weight")
      item.value().copy_(sinusoids(config.max_source_positions, config.d_model));
    else if (name.ends_with("bias"))
      torch::nn::init::zeros_(item.value());
    else
      torch::nn::init::normal_(item.value(), 0, config.init_std);
  }
  tokens_->weight.select(0, config.pad_token_id).zero_();
}

// Every rank computes the convolutions over all of the sound, because they read across the borders of parts.
torch::Tensor WhisperImpl::embed_sound(const StageContext& stage, const torch::Tensor& features) {
  const std::int64_t steps = kStepsPerToken * config.max_source_positions;
  if (features.dim() != 3 || features.size(1) != config.num_mel_bins || features.size(2) != steps)
    throw InputError(
        {"input_features", "the tensor is " + describe(features),
         fmt::format("[samples, {}, {}], num_mel_bins and twice max_source_positions", config.num_mel_bins, steps),
         "pad or truncate the audio to the model's length"});
  const torch::Tensor tokens = second_(first_(features.to(first_->weight.scalar_type()))).transpose(1, 2).contiguous();
  const auto part = stage.tokens().sequence;
  const nn::StreamScope scope(stage, part);
  return enter_(sound_dropout_(nn::own_tokens(tokens + sound_positions_, part)));
}

// The state before the first layer. It has no tokens if caches have the encoder's output.
TensorDict WhisperImpl::begin(const StageContext& stage, const TensorDict& input) {
  if (input.contains("input_features")) return {{"hidden", embed_sound(stage, input.at("input_features"))}};
  const std::int64_t samples = input.at("decoder_input_ids").size(0);
  return {{"hidden", torch::empty({samples, 0, config.d_model}, first_->weight.options().requires_grad(false))}};
}

torch::Tensor WhisperImpl::embed_tokens(const TensorDict& batch, const nn::TokenContext& target) {
  const torch::Tensor ids = decoder_tokens(batch, config.decoder_start_token_id, config.pad_token_id);
  const std::int64_t tokens = target.length > 0 ? target.length : ids.size(1);
  if (tokens > config.max_target_positions)
    throw InputError({"decoder_input_ids", fmt::format("there are {} tokens per sample", tokens),
                      fmt::format("at most the model's {} positions", config.max_target_positions),
                      "shorten the samples"});
  const bool has_places = target.caches || target.sequence;
  const torch::Tensor places = has_places ? target.positions : torch::arange(tokens, ids.options());
  return token_dropout_(tokens_(ids) + positions_(places));
}

// Runs this stage's layers of the decoder.
TensorDict WhisperImpl::decode(const StageContext& stage, TensorDict state, const nn::TokenContext& target) {
  const auto read = nn::reading(target.sequence, stage.tokens().sequence);
  const auto parts_of = [&](int index) {
    const nn::AttentionOptions self{
        .causal = true, .keep = target.keep, .cache = target.cache(index), .sequence = target.sequence};
    const nn::AttentionOptions cross{.cache = target.cache(static_cast<int>(config.decoder_layers) + index),
                                     .sequence = read};
    return decoder_layers_->ptr<WhisperLayerImpl>(index)->parts(self, cross);
  };
  state = stage.run_layers(std::move(state), parts_of, kDecoderList);
  if (stage.ends(kDecoderList) && state.contains("encoded")) state.take("encoded");
  return state;
}

TensorDict WhisperImpl::stage_forward(const StageContext& stage, TensorDict input) {
  refuse_places(stage.batch(), "Whisper");
  if (stage.batch().contains("input_ids"))
    throw InputError({"batch", "it contains input_ids, but Whisper's encoder reads audio features", "input_features",
                      "pass the features with GenerationOptions::encoder, or gantry generate --features FILE"});
  const nn::TokenContext target = stage.tokens("decoder_");
  const bool continues = target.caches && !stage.batch().contains("input_features");
  TensorDict state = stage.is_first() ? begin(stage, input) : std::move(input);
  const nn::AttentionOptions of_sound{.sequence = stage.tokens().sequence};
  if (!continues)
    state = stage.run_layers(
        std::move(state), [&](int index) { return encoder_layers_->ptr<WhisperLayerImpl>(index)->parts(of_sound, {}); },
        kEncoderList);
  if (stage.begins(kDecoderList)) {
    const torch::Tensor sound = continues ? torch::Tensor() : encoder_norm_(state.at("hidden"));
    state = {{"hidden", embed_tokens(stage.batch(), target)}};
    if (sound.defined()) state.set("encoded", sound);
  }
  state = decode(stage, std::move(state), target);
  if (!stage.is_last()) return state;
  return nn::head_output(head_, decoder_norm_(target.for_head(state.at("hidden"))));
}

TensorDict WhisperImpl::forward(const TensorDict& inputs) {
  const std::vector<int> lists = {static_cast<int>(config.encoder_layers), static_cast<int>(config.decoder_layers)};
  return stage_forward(*StageContext::full(lists, inputs), inputs);
}

}  // namespace gantry::models

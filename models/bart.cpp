#include "gantry/models/bart.h"

#include <cmath>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/models/encoder_decoder.h"
#include "gantry/models/register_at.h"
#include "gantry/nn/activation.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/nn/stream_scope.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

// The fixed positions of Pegasus: the sines of all frequencies, followed by the cosines.
torch::Tensor fixed_positions(std::int64_t positions, std::int64_t features) {
  const auto real = torch::TensorOptions(torch::kFloat64);
  const std::int64_t sines = (features + 1) / 2;
  const torch::Tensor powers = torch::arange(sines, real) * (2.0 / static_cast<double>(features));
  const torch::Tensor angles = torch::arange(positions, real).unsqueeze(1) / torch::pow(10000.0, powers).unsqueeze(0);
  return torch::cat({angles.sin(), angles.narrow(1, 0, features - sines).cos()}, 1);
}

// The initial weights of Hugging Face's models.
void initialise_bart(torch::nn::Module& model, const BartConfig& config) {
  const torch::NoGradGuard no_grad;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    if (auto* linear = dynamic_cast<nn::LinearImpl*>(item.value().get())) {
      torch::nn::init::normal_(linear->weight, 0, config.init_std);
      if (linear->bias.defined()) torch::nn::init::zeros_(linear->bias);
    } else if (auto* embedding = dynamic_cast<nn::EmbeddingImpl*>(item.value().get())) {
      if (config.norms_before && item.key().ends_with("embed_positions")) {
        embedding->weight.copy_(fixed_positions(config.max_position_embeddings, config.d_model));
        embedding->weight.set_requires_grad(false);
      } else {
        torch::nn::init::normal_(embedding->weight, 0, config.init_std);
      }
    }
  }
}

}  // namespace

BartLayerImpl::BartLayerImpl(const BartConfig& config, bool is_decoder)
    : activation_(config.activation_function), norms_before_(config.norms_before) {
  const std::int64_t width = config.d_model, inner = is_decoder ? config.decoder_ffn_dim : config.encoder_ffn_dim;
  const StackAttentionSizes sizes{is_decoder ? config.decoder_attention_heads : config.encoder_attention_heads, width,
                                  /*key_bias=*/true, config.attention_dropout, config.dropout};
  self_.emplace(*this, "self_attn", sizes);
  self_norm_ = register_module("self_attn_layer_norm", nn::LayerNorm(width));
  if (is_decoder) {
    cross_.emplace(*this, "encoder_attn", sizes);
    cross_norm_ = register_module("encoder_attn_layer_norm", nn::LayerNorm(width));
  }
  up_ = linear_at(*this, "fc1", width, inner, true);
  inner_dropout_ = register_module("activation_dropout", nn::Dropout(config.activation_dropout));
  down_ = linear_at(*this, "fc2", inner, width, true);
  mlp_dropout_ = register_module("dropout", nn::Dropout(config.dropout));
  mlp_norm_ = register_module("final_layer_norm", nn::LayerNorm(width));
}

torch::Tensor BartLayerImpl::mlp(const torch::Tensor& input) {
  const torch::Tensor wide = nn::activate(up_(input), activation_);
  return mlp_dropout_(down_(dropped_columns(inner_dropout_, wide, up_)));
}

template <class Block>
torch::Tensor BartLayerImpl::residual(nn::LayerNorm& norm, const torch::Tensor& hidden, const Block& block) const {
  return norms_before_ ? hidden + block(norm(hidden)) : norm(hidden + block(hidden));
}

LayerParts BartLayerImpl::parts(const nn::AttentionOptions& self, const nn::AttentionOptions& cross) {
  using Run = LayerPart::Run;
  LayerParts parts;
  parts.emplace_back("attention", Run([this, self](const TensorDict& state) -> TensorDict {
                       const auto attend = [&](const torch::Tensor& x) { return (*self_)(x, x, self); };
                       return {{"hidden", residual(self_norm_, state.at("hidden"), attend)}};
                     }));
  if (cross_)
    parts.emplace_back("cross", Run([this, cross](const TensorDict& state) -> TensorDict {
                         const torch::Tensor encoded = state.get("encoded");
                         const auto attend = [&](const torch::Tensor& x) { return (*cross_)(x, encoded, cross); };
                         return {{"hidden", residual(cross_norm_, state.at("hidden"), attend)}};
                       }));
  parts.emplace_back("mlp", Run([this](const TensorDict& state) -> TensorDict {
                       const auto apply = [this](const torch::Tensor& x) { return mlp(x); };
                       return {{"hidden", residual(mlp_norm_, state.at("hidden"), apply)}};
                     }));
  return parts;
}

BartStackImpl::BartStackImpl(const BartConfig& config, bool is_decoder) : first_position_(config.first_position()) {
  positions_ = register_module("embed_positions",
                               nn::Embedding(config.max_position_embeddings + first_position_, config.d_model));
  if (config.norms_before)
    last_norm_ = register_module("layer_norm", nn::LayerNorm(config.d_model));
  else
    norm_ = register_module("layernorm_embedding", nn::LayerNorm(config.d_model));
  dropout_ = register_module("dropout", nn::Dropout(config.dropout));
  layers = register_module("layers", torch::nn::ModuleList());
  const std::int64_t count = is_decoder ? config.decoder_layers : config.encoder_layers;
  for (std::int64_t layer = 0; layer < count; ++layer) layers->push_back(BartLayer(config, is_decoder));
}

torch::Tensor BartStackImpl::embed(const torch::Tensor& words, const torch::Tensor& places) {
  const torch::Tensor sum = words + positions_(places + first_position_);
  return dropout_(norm_ ? norm_(sum) : sum);
}

BartImpl::BartImpl(const BartConfig& config) : config(config) {
  const auto words = torch::nn::EmbeddingOptions(config.vocab_size, config.d_model).padding_idx(config.pad_token_id);
  shared_ = register_module("shared", nn::Embedding(words));
  encoder_ = register_module("encoder", BartStack(config, /*is_decoder=*/false));
  decoder_ = register_module("decoder", BartStack(config, /*is_decoder=*/true));
  head_ = linear_at(*this, "lm_head", config.d_model, config.vocab_size, false);
  logits_bias_ = register_parameter("final_logits_bias", torch::empty({1, config.vocab_size}),
                                    /*requires_grad=*/false);
  initialise_bart(*this, config);
  torch::nn::init::zeros_(logits_bias_);
  if (config.tie_word_embeddings) head_->tie_weight(shared_->weight);
}

void BartImpl::check_length(const char* entry, std::int64_t tokens) const {
  if (tokens > config.max_position_embeddings)
    throw InputError({entry, fmt::format("there are {} tokens per sample", tokens),
                      fmt::format("at most the model's {} positions", config.max_position_embeddings),
                      "shorten the samples"});
}

torch::Tensor BartImpl::embed(BartStack& stack, const torch::Tensor& ids, const torch::Tensor& places) {
  const torch::Tensor words = shared_(ids);
  return stack->embed(config.scale_embedding ? words * std::sqrt(static_cast<double>(config.d_model)) : words, places);
}

// In generation, stage.tokens() describes the decoder's tokens, except for the sequence.
TensorDict BartImpl::begin(const StageContext& stage, const TensorDict& input) {
  const auto part = stage.tokens().sequence;
  const nn::StreamScope scope(stage, part);
  if (!input.contains("input_ids")) {
    const std::int64_t samples = input.at("decoder_input_ids").size(0);
    return {{"hidden", torch::empty({samples, 0, config.d_model}, shared_->weight.options().requires_grad(false))}};
  }
  const torch::Tensor& ids = input.at("input_ids");
  check_length("input_ids", part ? part->shard.tokens : ids.size(1));
  return {
      {"hidden", embed(encoder_, ids, part ? part->positions : CountedNumbers(ids.size(1), ids.options()).numbers)}};
}

TensorDict BartImpl::run(const StageContext& stage, TensorDict state, int list) {
  const bool decodes = list == kDecoderList;
  const nn::TokenContext source = stage.tokens(), target = stage.tokens("decoder_");
  const torch::Tensor kept = nn::kept_tokens(stage.batch().get("attention_mask"));
  nn::AttentionOptions self{
      .causal = decodes, .keep = decodes ? target.keep : kept, .sequence = decodes ? target.sequence : source.sequence};
  nn::AttentionOptions cross{.keep = kept, .sequence = nn::reading(target.sequence, source.sequence)};
  const auto parts_of = [&](int index) {
    if (decodes) {
      self.cache = target.cache(index);
      cross.cache = target.cache(static_cast<int>(config.decoder_layers) + index);
    }
    return (decodes ? decoder_ : encoder_)->layers->ptr<BartLayerImpl>(index)->parts(self, cross);
  };
  return stage.run_layers(std::move(state), parts_of, list);
}

// The head's bias is not sharded: a rank adds its part.
torch::Tensor BartImpl::logits(const torch::Tensor& hidden) {
  const torch::Tensor made = head_(hidden);
  const ShardSpec& held = head_->weight_placement();
  const std::int64_t first = held.sharded() ? held.ranges(head_->group()->rank()).front().begin : 0;
  return made + logits_bias_.narrow(1, first, made.size(-1)).to(made.scalar_type());
}

TensorDict BartImpl::stage_forward(const StageContext& stage, TensorDict input) {
  refuse_places(stage.batch(), config.name());
  const nn::TokenContext target = stage.tokens("decoder_");
  TensorDict state = stage.is_first() ? begin(stage, input) : std::move(input);
  const bool continues = target.caches && !stage.batch().contains("input_ids");
  if (!continues) state = run(stage, std::move(state), kEncoderList);
  if (stage.begins(kDecoderList)) {
    const torch::Tensor ids = decoder_tokens(stage.batch(), config.decoder_start_token_id, config.pad_token_id);
    const torch::Tensor encoded = continues ? torch::Tensor() : encoder_->finish(state.at("hidden"));
    const std::int64_t length = target.length > 0 ? target.length : ids.size(1);
    check_length("decoder_input_ids", length);
    const bool has_places = target.caches || target.sequence;
    state = {{"hidden",
              embed(decoder_, ids, has_places ? target.positions : CountedNumbers(length, ids.options()).numbers)}};
    if (encoded.defined()) state.set("encoded", encoded);
  }
  state = run(stage, std::move(state), kDecoderList);
  if (stage.ends(kDecoderList) && state.contains("encoded")) state.take("encoded");
  if (!stage.is_last()) return state;
  return {{"logits", logits(target.for_head(decoder_->finish(state.at("hidden"))))}};
}

TensorDict BartImpl::forward(const TensorDict& inputs) {
  const std::vector<int> lists = {static_cast<int>(config.encoder_layers), static_cast<int>(config.decoder_layers)};
  return stage_forward(*StageContext::full(lists, inputs), inputs);
}

}  // namespace gantry::models

#include "gantry/models/llama.h"

#include <fmt/format.h>

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/nn/activation.h"

namespace gantry::models {
namespace {

nn::Linear projection(std::int64_t in, std::int64_t out, bool bias) {
  return nn::Linear(torch::nn::LinearOptions(in, out).bias(bias));
}

// The initial weights of Hugging Face's Llama.
void initialise(LlamaImpl& model) {
  const torch::NoGradGuard no_grad;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    if (auto* linear = dynamic_cast<nn::LinearImpl*>(item.value().get())) {
      torch::nn::init::normal_(linear->weight, 0, model.config.initializer_range);
      if (linear->bias.defined()) torch::nn::init::zeros_(linear->bias);
    } else if (auto* embedding = dynamic_cast<nn::EmbeddingImpl*>(item.value().get())) {
      torch::nn::init::normal_(embedding->weight, 0, model.config.initializer_range);
    }
  }
  if (const auto padding = model.config.pad_token_id) model.embed_tokens->weight.select(0, *padding).zero_();
}

}  // namespace

LlamaAttentionImpl::LlamaAttentionImpl(const LlamaConfig& config)
    : heads_(config.num_attention_heads),
      key_heads_(config.num_key_value_heads),
      head_size_(config.head_dim),
      rotary_(config.head_dim, config.rotary) {
  const bool bias = config.attention_bias;
  q_proj = register_module("q_proj", projection(config.hidden_size, heads_ * head_size_, bias));
  k_proj = register_module("k_proj", projection(config.hidden_size, key_heads_ * head_size_, bias));
  v_proj = register_module("v_proj", projection(config.hidden_size, key_heads_ * head_size_, bias));
  o_proj = register_module("o_proj", projection(heads_ * head_size_, config.hidden_size, bias));
  dropout = register_module("dropout", nn::Dropout(config.attention_dropout));
}

torch::Tensor LlamaAttentionImpl::forward(const torch::Tensor& hidden, const nn::AttentionOptions& attention,
                                          const torch::Tensor& positions) {
  const nn::HeadRange heads = nn::held_heads(q_proj, head_size_, heads_);
  const nn::HeadRange key_heads = nn::held_heads(k_proj, head_size_, key_heads_);
  const auto parts = nn::together(hidden, {q_proj, k_proj, v_proj});
  const torch::Tensor query = rotary_(nn::split_heads(parts[0], heads.count), positions);
  const torch::Tensor key = rotary_(nn::split_heads(parts[1], key_heads.count), positions);
  const torch::Tensor value = nn::split_heads(parts[2], key_heads.count);
  return o_proj(nn::merge_heads(nn::attention(query, key, value, heads, key_heads, attention, *dropout)));
}

LlamaMlpImpl::LlamaMlpImpl(const LlamaConfig& config) : activation_(config.hidden_act) {
  gate_proj = register_module("gate_proj", projection(config.hidden_size, config.intermediate_size, config.mlp_bias));
  up_proj = register_module("up_proj", projection(config.hidden_size, config.intermediate_size, config.mlp_bias));
  down_proj = register_module("down_proj", projection(config.intermediate_size, config.hidden_size, config.mlp_bias));
}

torch::Tensor LlamaMlpImpl::forward(const torch::Tensor& hidden) {
  const auto parts = nn::together(hidden, {gate_proj, up_proj});
  return down_proj(nn::activate(parts[0], activation_) * parts[1]);
}

LlamaLayerImpl::LlamaLayerImpl(const LlamaConfig& config) {
  input_layernorm = register_module("input_layernorm", nn::RmsNorm(config.hidden_size, config.rms_norm_eps));
  self_attn = register_module("self_attn", LlamaAttention(config));
  post_attention_layernorm =
      register_module("post_attention_layernorm", nn::RmsNorm(config.hidden_size, config.rms_norm_eps));
  mlp = register_module("mlp", LlamaMlp(config));
}

LayerParts LlamaLayerImpl::parts(const nn::AttentionOptions& attention, const torch::Tensor& positions) {
  return {{"attention",
           [this, attention, positions](const torch::Tensor& hidden) {
             return hidden + self_attn(input_layernorm(hidden), attention, positions);
           }},
          {"mlp", [this](const torch::Tensor& hidden) { return hidden + mlp(post_attention_layernorm(hidden)); }}};
}

LlamaImpl::LlamaImpl(const LlamaConfig& config) : config(config) {
  auto tokens = torch::nn::EmbeddingOptions(config.vocab_size, config.hidden_size);
  if (config.pad_token_id) tokens.padding_idx(config.pad_token_id);
  embed_tokens = register_module("embed_tokens", nn::Embedding(tokens));
  layers = register_module("layers", torch::nn::ModuleList());
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) layers->push_back(LlamaLayer(config));
  norm = register_module("norm", nn::RmsNorm(config.hidden_size, config.rms_norm_eps));
  lm_head = register_module("lm_head", projection(config.hidden_size, config.vocab_size, false));
  initialise(*this);
  if (config.tie_word_embeddings) lm_head->tie_weight(embed_tokens->weight);
}

torch::Tensor LlamaImpl::embed(const torch::Tensor& input_ids) {
  if (input_ids.size(1) > config.max_position_embeddings) {
    throw InputError({"input_ids", fmt::format("{} tokens per sample", input_ids.size(1)),
                      fmt::format("at most the model's {} positions", config.max_position_embeddings),
                      "shorten the samples"});
  }
  return embed_tokens(input_ids);
}

TensorDict LlamaImpl::stage_forward(const StageContext& stage, TensorDict input) {
  const nn::TokenContext tokens = stage.tokens();
  torch::Tensor hidden = stage.is_first() ? embed(input.at("input_ids")) : input.at("hidden");
  hidden = stage.run_layers(hidden, [&](int index) {
    return layers->at<LlamaLayerImpl>(index).parts(
        {.causal = true, .keep = tokens.keep, .cache = tokens.cache(index), .documents = tokens.documents},
        tokens.positions);
  });
  if (!stage.is_last()) return {{"hidden", hidden}};
  return {{"logits", lm_head(norm(tokens.for_head(hidden)))}};
}

TensorDict LlamaImpl::forward(const TensorDict& inputs) {
  return stage_forward(*StageContext::whole(layers->size(), inputs), inputs);
}

}  // namespace gantry::models

#include "gantry/models/gpt2.h"

#include <cmath>
#include <fmt/format.h>

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/nn/activation.h"

namespace gantry::models {
namespace {

// The initial weights of Hugging Face's GPT-2: the projections into the residual stream are scaled by the depth.
void initialise(Gpt2Impl& model) {
  const torch::NoGradGuard no_grad;
  const double range = model.config.initializer_range;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    if (auto* linear = dynamic_cast<nn::LinearImpl*>(item.value().get())) {
      const bool residual = item.key().ends_with("attn.proj") || item.key().ends_with("mlp.down");
      torch::nn::init::normal_(linear->weight, 0,
                               residual ? range / std::sqrt(2.0 * static_cast<double>(model.config.n_layer)) : range);
      if (linear->bias.defined()) torch::nn::init::zeros_(linear->bias);
    } else if (auto* embedding = dynamic_cast<nn::EmbeddingImpl*>(item.value().get())) {
      torch::nn::init::normal_(embedding->weight, 0, range);
    }
  }
}

}  // namespace

Gpt2AttentionImpl::Gpt2AttentionImpl(const Gpt2Config& config)
    : heads_(config.n_head), head_size_(config.n_embd / config.n_head) {
  qkv = register_module("qkv", nn::Linear(config.n_embd, 3 * config.n_embd));
  proj = register_module("proj", nn::Linear(config.n_embd, config.n_embd));
  attn_dropout = register_module("attn_dropout", nn::Dropout(config.attn_pdrop));
  resid_dropout = register_module("resid_dropout", nn::Dropout(config.resid_pdrop));
}

torch::Tensor Gpt2AttentionImpl::forward(const torch::Tensor& hidden, const nn::AttentionOptions& attention) {
  const nn::HeadRange held = nn::held_heads(qkv, head_size_, heads_);
  const torch::Tensor fused = qkv(hidden);
  const auto parts =
      fused.view({fused.size(0), fused.size(1), 3, held.count, head_size_}).permute({2, 0, 3, 1, 4}).unbind(0);
  const torch::Tensor mixed = nn::attention(parts[0], parts[1], parts[2], held, held, attention, *attn_dropout);
  return resid_dropout(proj(nn::merge_heads(mixed)));
}

Gpt2MlpImpl::Gpt2MlpImpl(const Gpt2Config& config) : activation_(config.activation_function) {
  const std::int64_t inner = config.n_inner > 0 ? config.n_inner : 4 * config.n_embd;
  up = register_module("up", nn::Linear(config.n_embd, inner));
  down = register_module("down", nn::Linear(inner, config.n_embd));
  dropout = register_module("dropout", nn::Dropout(config.resid_pdrop));
}

torch::Tensor Gpt2MlpImpl::forward(const torch::Tensor& hidden) {
  return dropout(down(nn::activate(up(hidden), activation_)));
}

Gpt2BlockImpl::Gpt2BlockImpl(const Gpt2Config& config) {
  ln_1 = register_module("ln_1", nn::LayerNorm(config.n_embd, config.layer_norm_epsilon));
  attn = register_module("attn", Gpt2Attention(config));
  ln_2 = register_module("ln_2", nn::LayerNorm(config.n_embd, config.layer_norm_epsilon));
  mlp = register_module("mlp", Gpt2Mlp(config));
}

LayerParts Gpt2BlockImpl::parts(const nn::AttentionOptions& attention) {
  return {
      {"attention", [this, attention](const torch::Tensor& hidden) { return hidden + attn(ln_1(hidden), attention); }},
      {"mlp", [this](const torch::Tensor& hidden) { return hidden + mlp(ln_2(hidden)); }}};
}

Gpt2Impl::Gpt2Impl(const Gpt2Config& config) : config(config) {
  wte = register_module("wte", nn::Embedding(config.vocab_size, config.n_embd));
  wpe = register_module("wpe", nn::Embedding(config.n_positions, config.n_embd));
  drop = register_module("drop", nn::Dropout(config.embd_pdrop));
  h = register_module("h", torch::nn::ModuleList());
  for (std::int64_t layer = 0; layer < config.n_layer; ++layer) h->push_back(Gpt2Block(config));
  ln_f = register_module("ln_f", nn::LayerNorm(config.n_embd, config.layer_norm_epsilon));
  lm_head =
      register_module("lm_head", nn::Linear(torch::nn::LinearOptions(config.n_embd, config.vocab_size).bias(false)));
  initialise(*this);
  if (config.tie_word_embeddings) lm_head->tie_weight(wte->weight);
}

torch::Tensor Gpt2Impl::embed(const torch::Tensor& input_ids, const torch::Tensor& positions) {
  const std::int64_t tokens = input_ids.size(1);
  if (tokens > config.n_positions) {
    throw InputError({"input_ids", fmt::format("{} tokens per sample", tokens),
                      fmt::format("at most the model's {} positions", config.n_positions), "shorten the samples"});
  }
  return drop(wte(input_ids) + wpe(positions.defined() ? positions : torch::arange(tokens, input_ids.options())));
}

TensorDict Gpt2Impl::stage_forward(const StageContext& stage, TensorDict input) {
  const nn::TokenContext tokens = stage.tokens();
  torch::Tensor hidden = stage.is_first() ? embed(input.at("input_ids"), tokens.positions) : input.at("hidden");
  hidden = stage.run_layers(hidden, [&](int index) {
    return h->at<Gpt2BlockImpl>(index).parts(
        {.causal = true, .keep = tokens.keep, .cache = tokens.cache(index), .documents = tokens.documents});
  });
  if (!stage.is_last()) return {{"hidden", hidden}};
  return {{"logits", lm_head(ln_f(tokens.for_head(hidden)))}};
}

TensorDict Gpt2Impl::forward(const TensorDict& inputs) {
  return stage_forward(*StageContext::whole(h->size(), inputs), inputs);
}

}  // namespace gantry::models

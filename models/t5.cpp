#include "gantry/models/t5.h"

#include <cmath>
#include <fmt/format.h>

#include "gantry/models/encoder_decoder.h"
#include "gantry/models/register_at.h"
#include "gantry/nn/activation.h"
#include "gantry/nn/context_attention.h"
#include "gantry/nn/deferred_logits.h"
#include "gantry/nn/stream_scope.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

// The initial weights of Hugging Face's T5, which depend on the input width of a matrix.
void initialise_t5(torch::nn::Module& model, const T5Config& config) {
  const torch::NoGradGuard no_grad;
  const auto model_width = static_cast<double>(config.d_model), inner = static_cast<double>(config.d_kv);
  const auto heads = static_cast<double>(config.num_heads), wide = static_cast<double>(config.d_ff);
  const auto deviation = [&](const std::string& name) {
    if (name == "shared.weight" || name == "lm_head.weight" || name.ends_with("embed_tokens.weight")) return 1.0;
    if (name.ends_with(".q.weight")) return 1 / std::sqrt(model_width * inner);
    if (name.ends_with(".o.weight")) return 1 / std::sqrt(heads * inner);
    return 1 / std::sqrt(name.ends_with(".wo.weight") ? wide : model_width);
  };
  for (auto& item : model.named_parameters())
    if (item.key().find("layer_norm") == std::string::npos)
      torch::nn::init::normal_(item.value(), 0, config.initializer_factor * deviation(item.key()));
}

RelativeBias relative_bias_of(const T5Config& config, bool is_decoder) {
  return RelativeBias(RelativeBuckets{.bidirectional = !is_decoder,
                                      .count = config.relative_attention_num_buckets,
                                      .max_distance = config.relative_attention_max_distance},
                      config.num_heads);
}

}  // namespace

T5Attention::T5Attention(torch::nn::Module& layer, const std::string& path, const T5Config& config)
    : heads_(config.num_heads), size_(config.d_kv) {
  const std::int64_t inner = heads_ * size_;
  query_ = linear_at(layer, path + ".q", config.d_model, inner, false);
  key_ = linear_at(layer, path + ".k", config.d_model, inner, false);
  value_ = linear_at(layer, path + ".v", config.d_model, inner, false);
  output_ = linear_at(layer, path + ".o", inner, config.d_model, false);
  dropout_ = register_at(layer, path + ".dropout", nn::Dropout(config.dropout_rate));
  output_dropout_ = register_at(layer, path + ".output_dropout", nn::Dropout(config.dropout_rate));
}

torch::Tensor T5Attention::operator()(const torch::Tensor& hidden, const torch::Tensor& read,
                                      nn::AttentionOptions options, const RelativeBias& bias) {
  const nn::HeadRange held = nn::held_heads(query_, size_, heads_);
  std::vector<torch::Tensor> parts;
  if (hidden.is_same(read)) {
    parts = nn::together(hidden, {query_, key_, value_});
  } else {
    parts = {query_(hidden)};
    const torch::Tensor none = read.defined() ? read : parts[0].narrow(1, 0, 0);
    const auto others = read.defined() ? nn::together(read, {key_, value_}) : std::vector<torch::Tensor>{none, none};
    parts.insert(parts.end(), others.begin(), others.end());
  }
  options.scale = 1;
  if (bias && options.sequence) {
    const auto [heads, places] = nn::context_queries(*options.sequence, held);
    options.bias = bias->forward(places, options.sequence->shard.tokens, heads);
  } else if (bias) {  // for all tokens, even if `hidden` has a part of them
    const std::int64_t tokens = parts[0].size(1), before = options.cache ? options.cache->tokens() : 0;
    const auto integers = torch::TensorOptions(torch::kInt64).device(parts[0].device());
    options.bias = bias->forward(torch::arange(before, before + tokens, integers), before + tokens, held);
  }
  const auto by_head = [&](int part) { return nn::split_heads(parts[part], held.count); };
  const torch::Tensor mixed = nn::attention(by_head(0), by_head(1), by_head(2), held, held, options, *dropout_);
  return output_dropout_(output_(nn::merge_heads(mixed)));
}

T5LayerImpl::T5LayerImpl(const T5Config& config, bool is_decoder)
    : activation_(config.activation), self_(*this, "layer.0.SelfAttention", config) {
  if (config.bias_in_each_layer)
    bias_ = register_at(*this, "layer.0.SelfAttention.relative_attention_bias", relative_bias_of(config, is_decoder));
  if (is_decoder) cross_.emplace(*this, "layer.1.EncDecAttention", config);
  const int last = is_decoder ? 2 : 1;
  for (int part = 0; part <= last; ++part)
    norms_.push_back(register_at(*this, fmt::format("layer.{}.layer_norm", part),
                                 nn::RmsNorm(config.d_model, config.layer_norm_epsilon)));
  const std::string path = fmt::format("layer.{}.DenseReluDense.", last);
  if (config.gated) gate_ = linear_at(*this, path + "wi_0", config.d_model, config.d_ff, false);
  up_ = linear_at(*this, path + (config.gated ? "wi_1" : "wi"), config.d_model, config.d_ff, false);
  down_ = linear_at(*this, path + "wo", config.d_ff, config.d_model, false);
  inner_dropout_ = register_at(*this, path + "dropout", nn::Dropout(config.dropout_rate));
  mlp_dropout_ = register_at(*this, path + "output_dropout", nn::Dropout(config.dropout_rate));
}

torch::Tensor T5LayerImpl::mlp(const torch::Tensor& input) {
  torch::Tensor wide;
  if (gate_) {
    const auto parts = nn::together(input, {gate_, up_});
    wide = nn::gated(parts[0], parts[1], activation_);
  } else {
    wide = nn::activate(up_(input), activation_);
  }
  return mlp_dropout_(down_(dropped_columns(inner_dropout_, wide, up_)));
}

LayerParts T5LayerImpl::parts(const nn::AttentionOptions& self, const nn::AttentionOptions& cross,
                              const RelativeBias& stack_bias) {
  const RelativeBias& bias = bias_ ? bias_ : stack_bias;
  const auto attend = [this, self, bias](const TensorDict& state) -> TensorDict {
    const torch::Tensor &hidden = state.at("hidden"), normed = norms_.front()(hidden);
    return {{"hidden", hidden + self_(normed, normed, self, bias)}};
  };
  const auto read = [this, cross](const TensorDict& state) -> TensorDict {
    const torch::Tensor& hidden = state.at("hidden");
    return {{"hidden", hidden + (*cross_)(norms_[1](hidden), state.get("encoded"), cross, nullptr)}};
  };
  const auto add_mlp = [this](const TensorDict& state) -> TensorDict {
    const torch::Tensor& hidden = state.at("hidden");
    return {{"hidden", hidden + mlp(norms_.back()(hidden))}};
  };
  using Run = LayerPart::Run;
  LayerParts parts;
  parts.emplace_back("attention", Run(attend));
  if (cross_) parts.emplace_back("cross", Run(read));
  parts.emplace_back("mlp", Run(add_mlp));
  return parts;
}

T5StackImpl::T5StackImpl(const T5Config& config, bool is_decoder) {
  if (is_decoder ? config.separate_decoder_embedding : config.separate_encoder_embedding)
    embed_tokens = register_module("embed_tokens", nn::Embedding(config.vocab_size, config.d_model));
  dropout = register_module("dropout", nn::Dropout(config.dropout_rate));
  if (!config.bias_in_each_layer)
    relative_attention_bias = register_module("relative_attention_bias", relative_bias_of(config, is_decoder));
  block = register_module("block", torch::nn::ModuleList());
  const std::int64_t layers = is_decoder ? config.num_decoder_layers : config.num_layers;
  for (std::int64_t layer = 0; layer < layers; ++layer) block->push_back(T5Layer(config, is_decoder));
  final_layer_norm = register_module("final_layer_norm", nn::RmsNorm(config.d_model, config.layer_norm_epsilon));
  last_dropout = register_module("last_dropout", nn::Dropout(config.dropout_rate));
}

T5Impl::T5Impl(const T5Config& config) : config(config) {
  if (config.has_shared_table()) shared_ = register_module("shared", nn::Embedding(config.vocab_size, config.d_model));
  encoder_ = register_module("encoder", T5Stack(config, /*is_decoder=*/false));
  decoder_ = register_module("decoder", T5Stack(config, /*is_decoder=*/true));
  head_ = linear_at(*this, "lm_head", config.d_model, config.vocab_size, false);
  initialise_t5(*this, config);
  if (config.tie_word_embeddings) head_->tie_weight(shared_->weight);
}

// Runs this stage's layers of a stack.
TensorDict T5Impl::run(const StageContext& stage, TensorDict state, int list) {
  T5Stack& stack = list == kEncoderList ? encoder_ : decoder_;
  const nn::TokenContext source = stage.tokens(), target = stage.tokens("decoder_");
  const auto cache = [&](int index) { return list == kDecoderList ? target.cache(index) : nullptr; };
  const torch::Tensor kept = nn::kept_tokens(stage.batch().get("attention_mask"));
  const bool decodes = list == kDecoderList;
  nn::AttentionOptions self{
      .causal = decodes, .keep = decodes ? target.keep : kept, .sequence = decodes ? target.sequence : source.sequence};
  nn::AttentionOptions cross{.keep = kept, .sequence = nn::reading(target.sequence, source.sequence)};
  const auto parts_of = [&](int index) {
    self.cache = cache(index);
    cross.cache = cache(static_cast<int>(config.num_decoder_layers) + index);
    return stack->block->ptr<T5LayerImpl>(index)->parts(self, cross, stack->relative_attention_bias);
  };
  return stage.run_layers(std::move(state), parts_of, list);
}

nn::Embedding& T5Impl::table_of(T5Stack& stack) { return stack->embed_tokens ? stack->embed_tokens : shared_; }

// The state before the first layer.
TensorDict T5Impl::begin(const StageContext& stage, const TensorDict& input) {
  const nn::StreamScope scope(stage, stage.tokens().sequence);
  nn::Embedding& table = table_of(encoder_);
  if (input.contains("input_ids")) return {{"hidden", encoder_->dropout(table(input.at("input_ids")))}};
  const std::int64_t samples = input.at("decoder_input_ids").size(0);
  return {{"hidden", torch::empty({samples, 0, config.d_model}, table->weight.options().requires_grad(false))}};
}

TensorDict T5Impl::begin_decoder(const StageContext& stage, const torch::Tensor& encoder_hidden) {
  const torch::Tensor ids = decoder_tokens(stage.batch(), config.decoder_start_token_id, config.pad_token_id);
  TensorDict state{{"hidden", decoder_->dropout(table_of(decoder_)(ids))}};
  if (!encoder_hidden.defined()) return state;
  const nn::StreamScope scope(stage, stage.tokens().sequence);
  state.set("encoded", encoder_->last_dropout(encoder_->final_layer_norm(encoder_hidden)));
  return state;
}

TensorDict T5Impl::stage_forward(const StageContext& stage, TensorDict input) {
  refuse_places(stage.batch(), "T5");
  const nn::TokenContext target = stage.tokens("decoder_");
  TensorDict state = stage.is_first() ? begin(stage, input) : std::move(input);
  const bool continues = target.caches && !stage.batch().contains("input_ids");
  if (!continues) state = run(stage, std::move(state), kEncoderList);
  if (stage.begins(kDecoderList)) state = begin_decoder(stage, continues ? torch::Tensor() : state.at("hidden"));
  state = run(stage, std::move(state), kDecoderList);
  if (stage.ends(kDecoderList) && state.contains("encoded")) state.take("encoded");
  if (!stage.is_last()) return state;
  torch::Tensor hidden = target.for_head(state.at("hidden"));
  hidden = decoder_->last_dropout(decoder_->final_layer_norm(hidden));
  if (config.scale_decoder_outputs) hidden = hidden * (1 / std::sqrt(static_cast<double>(config.d_model)));
  return nn::head_output(head_, hidden);
}

TensorDict T5Impl::forward(const TensorDict& inputs) {
  const std::vector<int> lists = {static_cast<int>(config.num_layers), static_cast<int>(config.num_decoder_layers)};
  return stage_forward(*StageContext::full(lists, inputs), inputs);
}

}  // namespace gantry::models

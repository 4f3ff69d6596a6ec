#include "gantry/models/modern_bert.h"

#include <cmath>

#include "gantry/models/encoder_decoder.h"
#include "gantry/models/register_at.h"
#include "gantry/nn/activation.h"
#include "gantry/nn/deferred_logits.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

nn::LayerNorm modern_norm_at(torch::nn::Module& root, const std::string& path, const ModernBertConfig& config) {
  using Parameters = nn::LayerNormParameters;
  return register_at(root, path,
                     nn::LayerNorm(config.bert.hidden_size, config.bert.layer_norm_eps,
                                   config.norm_bias ? Parameters::kWeightAndBias : Parameters::kWeight));
}

// The deviations of Hugging Face's ModernBERT, whose normal distributions are not truncated here.
void initialise_modern_bert(torch::nn::Module& model, const BertConfig& config) {
  const torch::NoGradGuard no_grad;
  const double into_residual =
      config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers));
  const auto deviation = [&](const std::string& name) {
    if (name == "classifier") return 1 / std::sqrt(static_cast<double>(config.hidden_size));
    const bool is_input = name.ends_with("tok_embeddings") || name.ends_with("Wqkv") || name.ends_with("Wi");
    return is_input ? config.initializer_range : into_residual;
  };
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    if (auto* linear = dynamic_cast<nn::LinearImpl*>(item.value().get())) {
      torch::nn::init::normal_(linear->weight, 0, deviation(item.key()));
      if (linear->bias.defined()) torch::nn::init::zeros_(linear->bias);
    } else if (auto* embedding = dynamic_cast<nn::EmbeddingImpl*>(item.value().get())) {
      torch::nn::init::normal_(embedding->weight, 0, deviation(item.key()));
    }
  }
}

}  // namespace

ModernBertLayerImpl::ModernBertLayerImpl(const ModernBertConfig& config, std::int64_t layer)
    : heads_(config.bert.num_attention_heads),
      head_size_(config.bert.hidden_size / config.bert.num_attention_heads),
      window_(config.windows.at(layer)),
      activation_(config.bert.hidden_act),
      rotary_(head_size_, window_ > 0 ? config.local_rotary : config.rotary) {
  const std::int64_t hidden = config.bert.hidden_size, inner = config.bert.intermediate_size;
  if (layer > 0) attention_norm_ = modern_norm_at(*this, "attn_norm", config);
  fused_ = linear_at(*this, "attn.Wqkv", hidden, 3 * hidden, config.attention_bias);
  output_ = linear_at(*this, "attn.Wo", hidden, hidden, config.attention_bias);
  attention_dropout_ = register_at(*this, "attn.dropout", nn::Dropout(config.bert.attention_probs_dropout_prob));
  output_dropout_ = register_at(*this, "attn.out_drop", nn::Dropout(config.bert.attention_probs_dropout_prob));
  mlp_norm_ = modern_norm_at(*this, "mlp_norm", config);
  fused_gate_ = linear_at(*this, "mlp.Wi", hidden, 2 * inner, config.mlp_bias);
  down_ = linear_at(*this, "mlp.Wo", inner, hidden, config.mlp_bias);
  mlp_dropout_ = register_at(*this, "mlp.drop", nn::Dropout(config.mlp_dropout));
}

torch::Tensor ModernBertLayerImpl::attend(const torch::Tensor& input, const nn::TokenContext& tokens) {
  const nn::HeadRange heads = nn::held_heads(fused_, head_size_, heads_);
  const auto parts = fused_(input).chunk(3, -1);
  const auto turned = [&](const torch::Tensor& part) {
    const torch::Tensor by_head = nn::split_heads(part, heads.count);
    return rotary_(by_head, tokens.positions, tokens.length > 0 ? tokens.length : by_head.size(2));
  };
  const nn::AttentionOptions options{
      .keep = tokens.keep, .window = window_, .documents = tokens.documents, .sequence = tokens.sequence};
  const torch::Tensor mixed = nn::attention(turned(parts[0]), turned(parts[1]), nn::split_heads(parts[2], heads.count),
                                            heads, heads, options, *attention_dropout_);
  return output_dropout_(output_(nn::merge_heads(mixed)));
}

torch::Tensor ModernBertLayerImpl::mlp(const torch::Tensor& input) {
  const torch::Tensor wide = nn::gated_halves(fused_gate_(input), activation_);
  return down_(dropped_columns(mlp_dropout_, wide, fused_gate_));
}

LayerParts ModernBertLayerImpl::parts(const nn::TokenContext& tokens) {
  return {{"attention",
           [this, tokens](const torch::Tensor& hidden) {
             return hidden + attend(attention_norm_ ? attention_norm_(hidden) : hidden, tokens);
           }},
          {"mlp", [this](const torch::Tensor& hidden) { return hidden + mlp(mlp_norm_(hidden)); }}};
}

ModernBertImpl::ModernBertImpl(const ModernBertConfig& described) : TextEncoderImpl(described.bert), modern(described) {
  auto words = torch::nn::EmbeddingOptions(config.vocab_size, config.hidden_size);
  if (config.pad_token_id) words.padding_idx(config.pad_token_id);
  table_ = register_at(*this, "embeddings.tok_embeddings", nn::Embedding(words));
  embedding_norm_ = modern_norm_at(*this, "embeddings.norm", modern);
  embedding_dropout_ = register_at(*this, "embeddings.drop", nn::Dropout(config.hidden_dropout_prob));
  layers = register_module("layers", torch::nn::ModuleList());
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    layers->push_back(ModernBertLayer(modern, layer));
  final_norm_ = modern_norm_at(*this, "final_norm", modern);
  if (config.head != BertHead::kMaskedLm) full_sequence = register_module("full_sequence", nn::PrepareInput());
  if (config.head != BertHead::kNone) {
    head_dense_ = linear_at(*this, "head.dense", config.hidden_size, config.hidden_size, modern.classifier_bias);
    head_norm_ = modern_norm_at(*this, "head.norm", modern);
  }
  if (config.head == BertHead::kMaskedLm) {
    decoder = linear_at(*this, "decoder", config.hidden_size, config.vocab_size, modern.decoder_bias);
  } else if (config.head != BertHead::kNone) {
    head_dropout_ = register_module("drop", nn::Dropout(config.classifier_dropout));
    classifier = register_module("classifier", nn::Linear(config.hidden_size, config.outputs()));
  }
  initialise_modern_bert(*this, config);
  if (decoder && config.tie_word_embeddings) decoder->tie_weight(table_->weight);
}

torch::Tensor ModernBertImpl::embed(const TensorDict& inputs, const nn::TokenContext&) {
  return embedding_dropout_(embedding_norm_(table_(inputs.at("input_ids"))));
}

LayerParts ModernBertImpl::parts_of(int layer, const nn::TokenContext& tokens) {
  return layers->at<ModernBertLayerImpl>(layer).parts(tokens);
}

torch::Tensor ModernBertImpl::finished(const torch::Tensor& hidden) { return final_norm_(hidden); }

torch::Tensor ModernBertImpl::predictions(const torch::Tensor& hidden) {
  return head_norm_(nn::activate(head_dense_(hidden), modern.classifier_activation));
}

bool ModernBertImpl::reads_all_tokens() const { return modern.mean_pooling || TextEncoderImpl::reads_all_tokens(); }

// [B, S, H] -> [B, H]
torch::Tensor ModernBertImpl::pooled(const torch::Tensor& hidden, const torch::Tensor& keep) const {
  if (!modern.mean_pooling) return hidden.select(1, 0);
  if (!keep.defined()) return hidden.mean(1);
  const torch::Tensor counted = keep.unsqueeze(-1).to(hidden.scalar_type());
  return (hidden * counted).sum(1) / counted.sum(1);
}

TensorDict ModernBertImpl::head(const torch::Tensor& hidden, const torch::Tensor& keep) {
  if (config.head == BertHead::kNone) return {{"last_hidden_state", hidden}};
  if (config.head == BertHead::kMaskedLm) return nn::head_output(decoder, predictions(hidden));
  const bool of_each_token =
      config.head == BertHead::kTokenClassification || config.head == BertHead::kQuestionAnswering;
  const torch::Tensor read = of_each_token ? hidden : pooled(hidden, keep);
  return {{"logits", classifier(head_dropout_(predictions(read)))}};
}

}  // namespace gantry::models

#include "gantry/models/bert.h"

#include "gantry/nn/activation.h"
#include "gantry/nn/deferred_logits.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

// RoBERTa's positions: padding has the row pad_token_id, and other tokens count from the next row.
bool counts_from_padding(const BertConfig& config) { return config.is_roberta(); }

// The initial weights of Hugging Face's BERT.
void initialise(BertImpl& model) {
  const torch::NoGradGuard no_grad;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    if (auto* linear = dynamic_cast<nn::LinearImpl*>(item.value().get())) {
      torch::nn::init::normal_(linear->weight, 0, model.config.initializer_range);
      if (linear->bias.defined()) torch::nn::init::zeros_(linear->bias);
    } else if (auto* embedding = dynamic_cast<nn::EmbeddingImpl*>(item.value().get())) {
      torch::nn::init::normal_(embedding->weight, 0, model.config.initializer_range);
    }
  }
  if (const auto padding = model.config.pad_token_id) {
    model.embeddings->word_embeddings->weight.select(0, *padding).zero_();
    if (counts_from_padding(model.config)) model.embeddings->position_embeddings->weight.select(0, *padding).zero_();
  }
}

}  // namespace

BertEmbeddingsImpl::BertEmbeddingsImpl(const BertConfig& config) {
  auto words = torch::nn::EmbeddingOptions(config.vocab_size, config.embedding_width());
  if (config.pad_token_id) words.padding_idx(config.pad_token_id);
  word_embeddings = register_module("word_embeddings", nn::Embedding(words));
  if (!config.rotary) {
    auto positions = torch::nn::EmbeddingOptions(config.max_position_embeddings, config.embedding_width());
    if (counts_from_padding(config)) positions.padding_idx(config.pad_token_id);
    position_embeddings = register_module("position_embeddings", nn::Embedding(positions));
  }
  if (config.type_vocab_size > 0)
    token_type_embeddings =
        register_module("token_type_embeddings", nn::Embedding(config.type_vocab_size, config.embedding_width()));
  norm = register_module("LayerNorm", nn::LayerNorm(config.embedding_width(), config.layer_norm_eps));
  dropout = register_module("dropout", nn::Dropout(config.hidden_dropout_prob));
}

torch::Tensor BertEmbeddingsImpl::forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                                          const torch::Tensor& positions) {
  torch::Tensor sum = word_embeddings(input_ids);
  if (token_type_embeddings)
    sum = sum + token_type_embeddings(token_type_ids.defined() ? token_type_ids : torch::zeros_like(input_ids));
  if (position_embeddings)
    sum = sum + position_embeddings(
                    positions.defined() ? positions : CountedNumbers(input_ids.size(1), input_ids.options()).numbers);
  return dropout(norm(sum));
}

BertResidualImpl::BertResidualImpl(std::int64_t in_features, const BertConfig& config, double dropout_probability) {
  dense = register_module("dense",
                          nn::Linear(torch::nn::LinearOptions(in_features, config.hidden_size).bias(!config.fused)));
  norm = register_module("LayerNorm", nn::LayerNorm(config.hidden_size, config.layer_norm_eps));
  dropout = register_module("dropout", nn::Dropout(dropout_probability));
}

torch::Tensor BertResidualImpl::forward(const torch::Tensor& input, const torch::Tensor& residual) {
  return norm(dropout(dense(input)) + residual);
}

BertSelfAttentionImpl::BertSelfAttentionImpl(const BertConfig& config)
    : heads_(config.num_attention_heads), head_size_(config.head_size()) {
  const std::int64_t width = heads_ * head_size_;
  if (config.fused) {
    fused = register_module("Wqkv", nn::Linear(torch::nn::LinearOptions(config.hidden_size, 3 * width).bias(false)));
  } else {
    query = register_module("query", nn::Linear(config.hidden_size, width));
    key = register_module("key", nn::Linear(config.hidden_size, width));
    value = register_module("value", nn::Linear(config.hidden_size, width));
  }
  dropout = register_module("dropout", nn::Dropout(config.attention_probs_dropout_prob));
  if (config.rotary) rotary_.emplace(head_size_, *config.rotary);
}

torch::Tensor BertSelfAttentionImpl::turned(const torch::Tensor& heads, const nn::TokenContext& tokens) {
  return rotary_ ? (*rotary_)(heads, tokens.positions, tokens.length > 0 ? tokens.length : heads.size(2)) : heads;
}

torch::Tensor BertSelfAttentionImpl::forward(const torch::Tensor& hidden, const nn::TokenContext& tokens) {
  const nn::HeadRange heads = nn::held_heads(fused ? fused : query, head_size_, heads_);
  const auto parts = fused ? fused(hidden).chunk(3, -1) : nn::together(hidden, {query, key, value});
  const nn::AttentionOptions options{.keep = tokens.keep, .documents = tokens.documents, .sequence = tokens.sequence};
  return nn::merge_heads(nn::attention(turned(nn::split_heads(parts[0], heads.count), tokens),
                                       turned(nn::split_heads(parts[1], heads.count), tokens),
                                       nn::split_heads(parts[2], heads.count), heads, heads, options, *dropout));
}

BertLayerImpl::BertLayerImpl(const BertConfig& config) : activation_(config.hidden_act) {
  const double dropped = config.hidden_dropout_prob;
  self = register_module("self", BertSelfAttention(config));
  attention_output =
      register_module("attention_output", BertResidual(config.num_attention_heads * config.head_size(), config,
                                                       config.attention_output_dropout.value_or(dropped)));
  const auto options = torch::nn::LinearOptions(config.hidden_size, config.intermediate_size).bias(!config.fused);
  intermediate = register_module("intermediate", nn::Linear(options));
  if (config.fused) gate = register_module("gate", nn::Linear(options));
  output = register_module("output",
                           BertResidual(config.intermediate_size, config, config.mlp_output_dropout.value_or(dropped)));
}

torch::Tensor BertLayerImpl::wide(const torch::Tensor& hidden) {
  if (!gate) return nn::activate(intermediate(hidden), activation_);
  const auto parts = nn::together(hidden, {intermediate, gate});
  return nn::gated(parts[1], parts[0], activation_);
}

LayerParts BertLayerImpl::parts(const nn::TokenContext& tokens) {
  return {{"attention",
           [this, tokens](const torch::Tensor& hidden) { return attention_output(self(hidden, tokens), hidden); }},
          {"mlp", [this](const torch::Tensor& hidden) { return output(wide(hidden), hidden); }}};
}

BertPredictionsImpl::BertPredictionsImpl(const BertConfig& config)
    : activation_(config.is_roberta() || config.is_electra() ? "gelu" : config.hidden_act) {
  const std::int64_t width = config.embedding_width();
  dense = register_module("dense", nn::Linear(config.hidden_size, width));
  norm = register_module("LayerNorm", nn::LayerNorm(width, config.layer_norm_eps));
  decoder = register_module("decoder", nn::Linear(width, config.vocab_size));
}

TensorDict BertPredictionsImpl::forward(const torch::Tensor& hidden) {
  return nn::head_output(decoder, norm(nn::activate(dense(hidden), activation_)));
}

BertImpl::BertImpl(const BertConfig& config) : TextEncoderImpl(config) {
  embeddings = register_module("embeddings", BertEmbeddings(config));
  if (config.embedding_width() != config.hidden_size)
    embeddings_project =
        register_module("embeddings_project", nn::Linear(config.embedding_width(), config.hidden_size));
  layers = register_module("layers", torch::nn::ModuleList());
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) layers->push_back(BertLayer(config));
  if (config.head == BertHead::kMaskedLm) {
    cls = register_module("cls", BertPredictions(config));
  } else {
    full_sequence = register_module("full_sequence", nn::PrepareInput());
  }
  const bool of_choices = config.head == BertHead::kMultipleChoice;
  const bool is_pooled = config.head == BertHead::kNone && config.is_pooled_without_head;
  if (is_pooled || config.head == BertHead::kSequenceClassification || of_choices)
    pooler = register_module("pooler", nn::Linear(config.hidden_size, config.hidden_size));
  if (config.head == BertHead::kSequenceClassification || config.head == BertHead::kTokenClassification || of_choices) {
    dropout = register_module("dropout", nn::Dropout(config.classifier_dropout));
    classifier = register_module("classifier", nn::Linear(config.hidden_size, config.outputs()));
  }
  if (config.head == BertHead::kSequenceClassification && (config.is_roberta() || config.is_electra()))
    pooler_dropout = register_module("pooler_dropout", nn::Dropout(config.classifier_dropout));
  if (config.head == BertHead::kQuestionAnswering) {
    dropout = register_module("dropout", nn::Dropout(config.classifier_dropout));
    qa_outputs = register_module("qa_outputs", nn::Linear(config.hidden_size, config.outputs()));
  }
  initialise(*this);
  if (cls && config.tie_word_embeddings) cls->decoder->tie_weight(embeddings->word_embeddings->weight);
}

torch::Tensor BertImpl::rows_of_positions(const TensorDict& inputs, const nn::TokenContext& tokens) const {
  if (!counts_from_padding(config) || inputs.contains("position_ids")) return tokens.positions;
  const std::int64_t padding = *config.pad_token_id;
  const auto& part = tokens.sequence;
  const bool in_documents = part ? part->documents.defined() : tokens.positions.defined();
  if (in_documents) return tokens.positions + (padding + 1);
  const torch::Tensor ids =
      part ? nn::join_parts(inputs.at("input_ids"), *part->group, part->shard) : inputs.at("input_ids");
  const torch::Tensor counted = (ids != padding).to(torch::kInt64), rows = counted.cumsum(1) * counted + padding;
  return part ? rows.index_select(1, part->positions.view({-1})) : rows;
}

torch::Tensor BertImpl::embed(const TensorDict& inputs, const nn::TokenContext& tokens) {
  const torch::Tensor embedded =
      embeddings(inputs.at("input_ids"), inputs.get("token_type_ids"), rows_of_positions(inputs, tokens));
  return embeddings_project ? embeddings_project(embedded) : embedded;
}

LayerParts BertImpl::parts_of(int layer, const nn::TokenContext& tokens) {
  return layers->at<BertLayerImpl>(layer).parts(tokens);
}

TensorDict BertImpl::head(const torch::Tensor& hidden, const torch::Tensor&) {
  if (config.head == BertHead::kMaskedLm) return cls(hidden);
  if (config.head == BertHead::kQuestionAnswering) return {{"logits", qa_outputs(dropout(hidden))}};
  if (config.head == BertHead::kTokenClassification) return {{"logits", classifier(dropout(hidden))}};
  if (!pooler) return {{"last_hidden_state", hidden}};
  torch::Tensor first = hidden.select(1, 0);
  if (pooler_dropout) first = pooler_dropout(first);
  const torch::Tensor pooled = nn::activate(pooler(first), config.pooler_activation);
  if (config.head == BertHead::kNone) return {{"last_hidden_state", hidden}, {"pooler_output", pooled}};
  return {{"logits", classifier(dropout(pooled))}};
}

}  // namespace gantry::models

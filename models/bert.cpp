#include "gantry/models/bert.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/nn/activation.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/nn/stream_scope.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

// RoBERTa's positions: padding has pad_token_id's row, and other tokens count from the row behind it.
bool counts_from_padding(const BertConfig& config) { return config.is_roberta(); }

// The initial weights of Hugging Face's BERT.
void initialise(BertImpl& model) {
  const torch::NoGradGuard no_grad;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    if (auto* linear = dynamic_cast<nn::LinearImpl*>(item.value().get())) {
      torch::nn::init::normal_(linear->weight, 0, model.config.initializer_range);
      torch::nn::init::zeros_(linear->bias);
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
  auto words = torch::nn::EmbeddingOptions(config.vocab_size, config.hidden_size);
  if (config.pad_token_id) words.padding_idx(config.pad_token_id);
  word_embeddings = register_module("word_embeddings", nn::Embedding(words));
  auto positions = torch::nn::EmbeddingOptions(config.max_position_embeddings, config.hidden_size);
  if (counts_from_padding(config)) positions.padding_idx(config.pad_token_id);
  position_embeddings = register_module("position_embeddings", nn::Embedding(positions));
  token_type_embeddings =
      register_module("token_type_embeddings", nn::Embedding(config.type_vocab_size, config.hidden_size));
  norm = register_module("LayerNorm", nn::LayerNorm(config.hidden_size, config.layer_norm_eps));
  dropout = register_module("dropout", nn::Dropout(config.hidden_dropout_prob));
}

torch::Tensor BertEmbeddingsImpl::forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                                          const torch::Tensor& positions) {
  const torch::Tensor types = token_type_ids.defined() ? token_type_ids : torch::zeros_like(input_ids);
  const torch::Tensor places = positions.defined() ? positions : torch::arange(input_ids.size(1), input_ids.options());
  return dropout(norm(word_embeddings(input_ids) + token_type_embeddings(types) + position_embeddings(places)));
}

BertResidualImpl::BertResidualImpl(std::int64_t in_features, const BertConfig& config) {
  dense = register_module("dense", nn::Linear(in_features, config.hidden_size));
  norm = register_module("LayerNorm", nn::LayerNorm(config.hidden_size, config.layer_norm_eps));
  dropout = register_module("dropout", nn::Dropout(config.hidden_dropout_prob));
}

torch::Tensor BertResidualImpl::forward(const torch::Tensor& input, const torch::Tensor& residual) {
  return norm(dropout(dense(input)) + residual);
}

BertSelfAttentionImpl::BertSelfAttentionImpl(const BertConfig& config)
    : heads_(config.num_attention_heads), head_size_(config.hidden_size / config.num_attention_heads) {
  query = register_module("query", nn::Linear(config.hidden_size, config.hidden_size));
  key = register_module("key", nn::Linear(config.hidden_size, config.hidden_size));
  value = register_module("value", nn::Linear(config.hidden_size, config.hidden_size));
  dropout = register_module("dropout", nn::Dropout(config.attention_probs_dropout_prob));
}

torch::Tensor BertSelfAttentionImpl::forward(const torch::Tensor& hidden, const nn::AttentionOptions& attention) {
  const nn::HeadRange heads = nn::held_heads(query, head_size_, heads_);
  const auto parts = nn::together(hidden, {query, key, value});
  return nn::merge_heads(nn::attention(nn::split_heads(parts[0], heads.count), nn::split_heads(parts[1], heads.count),
                                       nn::split_heads(parts[2], heads.count), heads, heads, attention, *dropout));
}

BertLayerImpl::BertLayerImpl(const BertConfig& config) : activation_(config.hidden_act) {
  self = register_module("self", BertSelfAttention(config));
  attention_output = register_module("attention_output", BertResidual(config.hidden_size, config));
  intermediate = register_module("intermediate", nn::Linear(config.hidden_size, config.intermediate_size));
  output = register_module("output", BertResidual(config.intermediate_size, config));
}

LayerParts BertLayerImpl::parts(const nn::AttentionOptions& attention) {
  return {{"attention", [this, attention](
                            const torch::Tensor& hidden) { return attention_output(self(hidden, attention), hidden); }},
          {"mlp", [this](const torch::Tensor& hidden) {
             return output(nn::activate(intermediate(hidden), activation_), hidden);
           }}};
}

BertPredictionsImpl::BertPredictionsImpl(const BertConfig& config)
    : activation_(config.is_roberta() ? "gelu" : config.hidden_act) {
  dense = register_module("dense", nn::Linear(config.hidden_size, config.hidden_size));
  norm = register_module("LayerNorm", nn::LayerNorm(config.hidden_size, config.layer_norm_eps));
  decoder = register_module("decoder", nn::Linear(config.hidden_size, config.vocab_size));
}

torch::Tensor BertPredictionsImpl::forward(const torch::Tensor& hidden) {
  return decoder(norm(nn::activate(dense(hidden), activation_)));
}

BertImpl::BertImpl(const BertConfig& config) : config(config) {
  embeddings = register_module("embeddings", BertEmbeddings(config));
  layers = register_module("layers", torch::nn::ModuleList());
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) layers->push_back(BertLayer(config));
  if (config.head == BertHead::kMaskedLm) {
    cls = register_module("cls", BertPredictions(config));
  } else {
    full_sequence = register_module("full_sequence", nn::PrepareInput());
  }
  const bool of_choices = config.head == BertHead::kMultipleChoice;
  if (config.head == BertHead::kNone || config.head == BertHead::kSequenceClassification || of_choices)
    pooler = register_module("pooler", nn::Linear(config.hidden_size, config.hidden_size));
  if (config.head == BertHead::kSequenceClassification || config.head == BertHead::kTokenClassification || of_choices) {
    dropout = register_module("dropout", nn::Dropout(config.classifier_dropout));
    classifier = register_module("classifier", nn::Linear(config.hidden_size, of_choices ? 1 : config.num_labels));
  }
  if (config.head == BertHead::kSequenceClassification && config.is_roberta())
    pooler_dropout = register_module("pooler_dropout", nn::Dropout(config.classifier_dropout));
  if (config.head == BertHead::kQuestionAnswering)
    qa_outputs = register_module("qa_outputs", nn::Linear(config.hidden_size, 2));
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

torch::Tensor BertImpl::embed(const TensorDict& inputs, const nn::TokenContext& known) {
  const torch::Tensor& input_ids = inputs.at("input_ids");
  if (input_ids.dim() != 2)
    throw InputError({"input_ids", "the tensor is " + describe(input_ids), "[samples, tokens]",
                      "use an architecture ForMultipleChoice for several choices per sample"});
  const std::int64_t tokens = known.length > 0 ? known.length : input_ids.size(1);
  if (tokens > config.longest()) {
    throw InputError({"input_ids", fmt::format("there are {} tokens per sample", tokens),
                      fmt::format("at most the model's {} positions", config.longest()), "shorten the samples"});
  }
  return embeddings(input_ids, inputs.get("token_type_ids"), rows_of_positions(inputs, known));
}

TensorDict BertImpl::head(const torch::Tensor& hidden) {
  if (config.head == BertHead::kMaskedLm) return {{"logits", cls(hidden)}};
  if (config.head == BertHead::kQuestionAnswering) return {{"logits", qa_outputs(hidden)}};
  if (config.head == BertHead::kTokenClassification) return {{"logits", classifier(dropout(hidden))}};
  torch::Tensor first = hidden.select(1, 0);
  if (pooler_dropout) first = pooler_dropout(first);
  const torch::Tensor pooled = torch::tanh(pooler(first));
  if (config.head == BertHead::kNone) return {{"last_hidden_state", hidden}, {"pooler_output", pooled}};
  return {{"logits", classifier(dropout(pooled))}};
}

namespace {

// [B, choices, ...] -> [B choices, ...]; what is absent stays so.
torch::Tensor rows_of(const torch::Tensor& choices) { return choices.defined() ? choices.flatten(0, 1) : choices; }

}  // namespace

// Each choice is a row. A row's dropout is that of its place among all rows of the step.
TensorDict BertImpl::choose(const StageContext& stage, const TensorDict& input) {
  const torch::Tensor& given = input.at(stage.is_first() ? "input_ids" : "hidden");
  if (given.dim() < 3 || stage.batch().contains("document_ids"))
    throw InputError({"batch", given.dim() < 3 ? "its input_ids are " + describe(given) : "it contains document_ids",
                      "[samples, choices, tokens] for multiple choice, with one sequence per choice",
                      "write the choices of a sample one after the other"});
  TensorDict rows;
  for (const auto& [name, tensor] : input)
    if (tensor.defined() && tensor.dim() > 2) rows.set(name, rows_of(tensor));
  nn::TokenContext tokens = stage.tokens();
  tokens.keep = rows_of(tokens.keep);
  tokens.positions = rows_of(tokens.positions);
  Forward forward = forward_now();
  if (forward.random) forward.random->first_sample *= given.size(1);
  const ForwardScope scope(forward);
  const TensorDict output = run_stage(stage, rows, tokens);
  const char* entry = stage.is_last() ? "logits" : "hidden";
  const torch::Tensor made = output.at(entry).unflatten(0, {given.size(0), given.size(1)});
  return {{entry, stage.is_last() ? made.squeeze(-1) : made}};
}

TensorDict BertImpl::stage_forward(const StageContext& stage, const TensorDict& input) {
  if (config.head == BertHead::kMultipleChoice) return choose(stage, input);
  return run_stage(stage, input, stage.tokens());
}

TensorDict BertImpl::run_stage(const StageContext& stage, const TensorDict& input, const nn::TokenContext& tokens) {
  torch::Tensor hidden = stage.is_first() ? embed(input, tokens) : input.at("hidden");
  hidden = stage.run_layers(hidden, [&](int index) {
    return layers->at<BertLayerImpl>(index).parts(
        {.keep = tokens.keep, .documents = tokens.documents, .sequence = tokens.sequence});
  });
  if (!stage.is_last()) return {{"hidden", hidden}};
  if (config.head == BertHead::kMaskedLm) return head(hidden);
  const auto& part = tokens.sequence;
  const torch::Tensor known = full_sequence(hidden);
  if (!part || config.head == BertHead::kTokenClassification) return head(known);
  // The other heads look at the sequence as a whole: all ranks compute them alike.
  const nn::StreamScope scope(stage, nullptr);
  const bool reads_all = config.head == BertHead::kQuestionAnswering || config.head == BertHead::kNone;
  return head(reads_all ? nn::joined(known, *part) : nn::first_token(known, *part));
}

TensorDict BertImpl::forward(const TensorDict& inputs) {
  return stage_forward(*StageContext::full(layers->size(), inputs), inputs);
}

}  // namespace gantry::models

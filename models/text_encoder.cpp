#include "gantry/models/text_encoder.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/models/sentence_embedding.h"
#include "gantry/nn/gather_samples.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/nn/stream_scope.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

// [B, choices, ...] -> [B choices, ...]; undefined tensors stay undefined.
torch::Tensor rows_of(const torch::Tensor& choices) { return choices.defined() ? choices.flatten(0, 1) : choices; }

}  // namespace

TextEncoderImpl::TextEncoderImpl(const BertConfig& config) : config(config) {
  if (config.has_groups_of_texts() && config.sentence)
    samples_ = register_module("samples", std::make_shared<nn::GatherSamplesImpl>());
}

void TextEncoderImpl::check_tokens(const TensorDict& inputs, const nn::TokenContext& tokens) const {
  const torch::Tensor& input_ids = inputs.at("input_ids");
  if (input_ids.dim() != 2)
    throw InputError({"input_ids", "the tensor is " + describe(input_ids), "[samples, tokens]",
                      "use an architecture ForMultipleChoice for several "
                      "choices per sample"});
  const std::int64_t length = tokens.length > 0 ? tokens.length : input_ids.size(1);
  if (length > config.longest())
    throw InputError({"input_ids", fmt::format("there are {} tokens per sample", length),
                      fmt::format("at most the model's {} positions", config.longest()), "shorten the samples"});
  if (config.sentence && inputs.contains("document_ids"))
    throw InputError({"batch", "it contains document_ids, but a sample has one sentence embedding",
                      "one sentence per sample", "remove the entry, or set model.config.architectures"});
}

// Each choice or text is a row. A row's dropout is that of its place among all rows of the step.
TensorDict TextEncoderImpl::choose(const StageContext& stage, const TensorDict& input) {
  const torch::Tensor& given = input.at(stage.is_first() ? "input_ids" : "hidden");
  if (given.dim() < 3 || stage.batch().contains("document_ids"))
    throw InputError({"batch", given.dim() < 3 ? "its input_ids are " + describe(given) : "it contains document_ids",
                      samples_ ? "[samples, texts, tokens], with one sequence per text"
                               : "[samples, choices, tokens] for multiple choice, with one sequence per choice",
                      "write the sequences of a sample one after the other"});
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
  const char* entry = !stage.is_last() ? "hidden" : samples_ ? "sentence_embedding" : "logits";
  const torch::Tensor made = output.at(entry).unflatten(0, {given.size(0), given.size(1)});
  if (samples_ && stage.is_last()) return compared(made);
  return {{entry, stage.is_last() ? made.squeeze(-1) : made}};
}

TensorDict TextEncoderImpl::compared(const torch::Tensor& embeddings) const {
  const torch::Tensor unit = unit_length(embeddings);
  const auto [all, first] = samples_->forward(unit);
  return {{"sentence_embedding", embeddings}, {"losses", ranking_losses(unit, all, first)}};
}

TensorDict TextEncoderImpl::stage_forward(const StageContext& stage, const TensorDict& input) {
  if (config.has_groups_of_texts()) return choose(stage, input);
  return run_stage(stage, input, stage.tokens());
}

TensorDict TextEncoderImpl::run_stage(const StageContext& stage, const TensorDict& input,
                                      const nn::TokenContext& tokens) {
  if (stage.is_first()) check_tokens(input, tokens);
  torch::Tensor hidden = stage.is_first() ? embed(input, tokens) : input.at("hidden");
  hidden = stage.run_layers(hidden, [&](int index) { return parts_of(index, tokens); });
  if (!stage.is_last()) return {{"hidden", hidden}};
  hidden = finished(hidden);
  if (config.head == BertHead::kMaskedLm) return head(hidden, tokens.keep);
  const auto& part = tokens.sequence;
  const torch::Tensor known = full_sequence(hidden);
  if (!part || config.head == BertHead::kTokenClassification) return results(known, tokens.keep);
  // The other heads read the full sequence; all ranks compute the same values.
  const nn::StreamScope scope(stage, nullptr);
  return results(reads_all_tokens() ? nn::joined(known, *part) : nn::first_token(known, *part), part->keep);
}

// `hidden`: all tokens that the head reads.
TensorDict TextEncoderImpl::results(const torch::Tensor& hidden, const torch::Tensor& keep) {
  TensorDict made = head(hidden, keep);
  if (config.sentence) made.set("sentence_embedding", sentence_embedding(hidden, keep, *config.sentence));
  return made;
}

TensorDict TextEncoderImpl::forward(const TensorDict& inputs) {
  return stage_forward(*StageContext::full(layers->size(), inputs), inputs);
}

}  // namespace gantry::models

#include "gantry/models/text_encoder.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/models/sentence_embedding.h"
#include "gantry/models/text_rows.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/nn/stream_scope.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

TextEncoderImpl::TextEncoderImpl(const BertConfig& config) : config(config) {
  if (config.has_groups_of_texts() && config.sentence)
    samples_ = register_module(kSamples, std::make_shared<nn::GatherSamplesImpl>());
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
  if (config.sentence) refuse_documents(inputs);
}

TensorDict TextEncoderImpl::choose(const StageContext& stage, const TensorDict& input) {
  const TextRows rows =
      rows_of_texts(stage, input,
                    samples_ ? "[samples, texts, tokens], with one sequence per text"
                             : "[samples, choices, tokens] for multiple choice, with one sequence per choice");
  const ForwardScope scope(rows.forward);
  const TensorDict output = run_stage(stage, rows.input, rows.tokens);
  if (!stage.is_last()) return {{"hidden", rows.grouped(output.at("hidden"))}};
  if (samples_) return compared_texts(*samples_, rows.grouped(output.at("sentence_embedding")));
  return {{"logits", rows.grouped(output.at("logits")).squeeze(-1)}};
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

#include "gantry/models/text_rows.h"

#include "gantry/core/error.h"
#include "gantry/models/sentence_embedding.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

// [B, texts, ...] -> [B texts, ...]; undefined tensors stay undefined.
torch::Tensor flattened(const torch::Tensor& texts) { return texts.defined() ? texts.flatten(0, 1) : texts; }

}  // namespace

torch::Tensor TextRows::grouped(const torch::Tensor& rows) const { return rows.unflatten(0, {samples, texts}); }

TextRows rows_of_texts(const StageContext& stage, const TensorDict& input, const char* expected) {
  const torch::Tensor& given = input.at(stage.is_first() ? "input_ids" : "hidden");
  if (given.dim() < 3 || stage.batch().contains("document_ids"))
    throw InputError({"batch", given.dim() < 3 ? "its input_ids are " + describe(given) : "it contains document_ids",
                      expected, "write the sequences of a sample one after the other"});
  TextRows rows{.tokens = stage.tokens(), .forward = forward_now(), .samples = given.size(0), .texts = given.size(1)};
  for (const auto& [name, tensor] : input)
    if (tensor.defined() && tensor.dim() > 2) rows.input.set(name, flattened(tensor));
  rows.tokens.keep = flattened(rows.tokens.keep);
  rows.tokens.positions = flattened(rows.tokens.positions);
  if (rows.forward.random) rows.forward.random->first_sample *= rows.texts;
  return rows;
}

TensorDict compared_texts(const nn::GatherSamplesImpl& samples, const torch::Tensor& embeddings) {
  const torch::Tensor unit = unit_length(embeddings);
  const auto [all, first] = samples.forward(unit);
  return {{"sentence_embedding", embeddings}, {"losses", ranking_losses(unit, all, first)}};
}

void refuse_documents(const TensorDict& inputs) {
  if (inputs.contains("document_ids"))
    throw InputError({"batch", "it contains document_ids, but a sample has one sentence embedding",
                      "one sentence per sample", "remove the entry, or set model.config.architectures"});
}

}  // namespace gantry::models

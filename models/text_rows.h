// Samples of several texts, [B, texts, S], as rows of a model of text: the choices of a question, or texts whose
// embeddings are compared.
#pragma once

#include "gantry/nn/forward.h"
#include "gantry/nn/gather_samples.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

// The path of the module that gathers the embeddings of all replicas; it has no parameters.
inline constexpr const char* kSamples = "samples";

// The texts of a stage's input, each as a row.
struct TextRows {
  TensorDict input;         // [B texts, ...]
  nn::TokenContext tokens;  // those of the rows
  Forward forward;          // the random numbers of a row are those of its place among all rows of the step
  std::int64_t samples, texts;

  // [B texts, ...] -> [B, texts, ...].
  torch::Tensor grouped(const torch::Tensor& rows) const;
};

// `expected`: the shape of input_ids in an InputError, which is thrown for other shapes and for document_ids.
TextRows rows_of_texts(const StageContext& stage, const TensorDict& input, const char* expected);

// {sentence_embedding, losses [B]} of embeddings [B, texts, H], which are compared with those of all replicas.
TensorDict compared_texts(const nn::GatherSamplesImpl& samples, const torch::Tensor& embeddings);

// Throws InputError for document_ids: a sample has one sentence embedding.
void refuse_documents(const TensorDict& inputs);

}  // namespace gantry::models

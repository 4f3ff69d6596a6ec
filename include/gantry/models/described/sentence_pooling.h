// The computation of sentence embeddings, by the modules of sentence-transformers.
#pragma once

#include <string>
#include <vector>

namespace gantry::models {

// The embedding of a sentence from its tokens.
struct SentencePooling {
  // "cls", "max", "mean", "mean_sqrt_len_tokens" or "lasttoken": embeddings that are concatenated.
  std::vector<std::string> modes;
  bool normalizes = false;  // to length 1
  // The model is trained: a sample is a group of texts, [B, texts, S], whose embeddings are compared with those of the
  // other samples. The outputs are {sentence_embedding [B, texts, modes * H], losses [B]}.
  bool compares = false;
};

}  // namespace gantry::models

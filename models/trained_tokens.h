// Rows of a decoder's embedding that are trained next to adapters (lora.trainable_token_indices).
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "gantry/nn/embedding.h"
#include "gantry/nn/linear.h"

namespace gantry::models {

// The layers that read these rows.
struct TokenLayers {
  std::string path;  // registered, of the embedding
  nn::EmbeddingImpl* table;
  nn::LinearImpl* tied_head;  // null: the output layer has its own weight
};

// Throws ConfigError for a token outside of the vocabulary, and for a model that is not a described decoder.
TokenLayers token_layers(torch::nn::Module& model, const std::vector<int>& tokens);

// Trains these rows of the embedding, and with them those of a tied output layer. Call it when adapters were added and
// parameters frozen, for an embedding that has no adapter and is not trained in full. Throws ConfigError like
// token_layers().
void train_tokens(torch::nn::Module& model, const std::vector<int>& tokens);

}  // namespace gantry::models

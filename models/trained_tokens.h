// Rows of a decoder's embedding that are trained next to adapters (lora.trainable_token_indices).
#pragma once

#include <vector>

#include <torch/nn/module.h>

namespace gantry::models {

// Trains these rows of the embedding, and with them those of a tied output layer. Call it when adapters were added and
// parameters frozen. Throws ConfigError for a token outside of the vocabulary, for an embedding that has an adapter or
// is trained in full, and for a model that is not a described decoder.
void train_tokens(torch::nn::Module& model, const std::vector<int>& tokens);

}  // namespace gantry::models

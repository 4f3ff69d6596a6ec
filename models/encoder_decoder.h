// Functions that all models of an encoder and a decoder use.
#pragma once

#include <cstdint>
#include <string>

#include "gantry/nn/dropout.h"
#include "gantry/nn/linear.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

constexpr int kEncoderList = 0, kDecoderList = 1;  // the lists of layers

// int64 [B, S]: the decoder_input_ids of the batch. If it has none: `start`, followed by the labels except
// the last one. Labels of -100 become `padding`.
torch::Tensor decoder_tokens(const TensorDict& batch, std::int64_t start, std::int64_t padding);

// Throws InputError if the batch has positions or documents.
void refuse_places(const TensorDict& batch, const std::string& model);

// Dropout of local output features of `up`, [B, S, local features]. It depends on their positions in the full
// width.
torch::Tensor dropped_columns(const nn::Dropout& dropout, const torch::Tensor& wide, const nn::Linear& up);

}  // namespace gantry::models

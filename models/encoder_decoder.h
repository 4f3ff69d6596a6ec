// What models of an encoder and a decoder share.
#pragma once

#include <cstdint>
#include <string>

#include "gantry/nn/dropout.h"
#include "gantry/nn/linear.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

constexpr int kEncoderList = 0, kDecoderList = 1;  // the lists of layers

// int64 [B, S]: the batch's decoder_input_ids or, where it has none, its labels moved one place on, behind `start`;
// labels of -100 become `padding`.
torch::Tensor decoder_tokens(const TensorDict& batch, std::int64_t start, std::int64_t padding);

// InputError for a batch that says positions or documents.
void refuse_places(const TensorDict& batch, const std::string& model);

// Dropout of features that `up` gave, [B, S, features held]: by their places in the full width.
torch::Tensor dropped_columns(const nn::Dropout& dropout, const torch::Tensor& wide, const nn::Linear& up);

}  // namespace gantry::models

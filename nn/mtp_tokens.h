// The tokens and labels of multi-token prediction as entries of a batch. They are made from full sequences, before
// these are sharded over ranks.
#pragma once

#include <string>
#include <vector>

#include "gantry/tensors/tensor_dict.h"

namespace gantry::nn {

// int64 [samples, tokens, depths]. At depth k, from 1: the token k places ahead, or 0 after the end.
inline constexpr const char* kMtpIds = "mtp_input_ids";
// The same shape: the label k places ahead of the label of the next token, or -100 if the sequence, the document of
// document_ids or the text before its padding (attention_mask) ends before that label.
inline constexpr const char* kMtpLabels = "mtp_labels";
inline constexpr const char* kMtpLoss = "mtp_loss";  // the name of the added loss

// Returns the batch with these entries for `depths` depths. `labels` [samples, tokens]: the label of the next token of
// each token; undefined: without kMtpLabels. Entries on the meta device stay there. Throws InputError if the batch has
// no input_ids [samples, tokens], or labels of another shape.
TensorDict with_mtp_tokens(TensorDict batch, const torch::Tensor& labels, int depths);

// The number of labels of each depth that count.
std::vector<double> count_mtp_labels(const TensorDict& batch, int depths);

}  // namespace gantry::nn

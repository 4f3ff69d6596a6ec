// The token streams of a model whose ranks share sequences (parallel.context), if they are not one causal sequence of
// input_ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// The tokens that a list of layers runs on.
struct TokenStream {
  std::string prefix = {};           // prefix of the names of its masks and documents, such as "decoder_"
  std::int64_t tokens = 0;           // number of tokens per sample
  bool causal = false;               // no token attends to later ones
  std::vector<std::string> entries;  // the entries of a batch that are sharded, [samples, tokens, ...]
};

// An additional base class of a policy that implements Policy::context_heads(). A policy without it has one causal
// stream, which consists of all entries [samples, tokens, ...] of a batch.
class SharesStreams {
 public:
  virtual ~SharesStreams() = default;
  // Returns false for a model with one causal stream, like the model of a policy without this interface.
  virtual bool has_streams(const torch::nn::Module&) const { return true; }
  // Returns one stream for each list of layers, for a batch of full sequences. Its entries may be on the meta device.
  virtual std::vector<TokenStream> token_streams(const torch::nn::Module& model, const TensorDict& batch) const = 0;
  // Returns the batch with the entries that forward() would compute from neighbouring tokens.
  virtual TensorDict completed(const torch::nn::Module&, TensorDict batch) const { return batch; }
  // Returns true if all ranks of the context group return the same full outputs, instead of the outputs of their own
  // tokens. One rank then compares them with the labels.
  virtual bool gathers_outputs(const torch::nn::Module&) const { return false; }
};

}  // namespace gantry

// The token streams of a model whose ranks share sequences (parallel.context), if these are not one causal text of
// input_ids whose outputs are per token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// The tokens that a list of layers runs on.
struct TokenStream {
  std::string prefix = {};           // prefix of the names of their masks and documents: "decoder_"
  std::int64_t tokens = 0;           // number of tokens of each sample
  bool causal = false;               // true: no token attends to a later one
  std::vector<std::string> entries;  // entries of a batch, [samples, tokens, ...], that are sharded
};

// A second base class for policies that implement context_heads(). For a policy without it, the model has one causal
// stream, and every entry [samples, tokens, ...] is sharded.
class SharesStreams {
 public:
  virtual ~SharesStreams() = default;
  // Returns false for a model that needs none of the functions below.
  virtual bool has_streams(const torch::nn::Module&) const { return true; }
  // Returns a stream for each list of layers. `batch` has full sequences; its entries may be on the meta device.
  virtual std::vector<TokenStream> token_streams(const torch::nn::Module& model, const TensorDict& batch) const = 0;
  // Returns the batch with the entries that forward() would derive from neighbouring tokens.
  virtual TensorDict completed(const torch::nn::Module&, TensorDict batch) const { return batch; }
  // True if forward() returns full outputs on every rank, and not outputs of the rank's tokens. One rank compares them
  // with labels.
  virtual bool gathers_outputs(const torch::nn::Module&) const { return false; }
};

}  // namespace gantry

// Which tokens a model's ranks share (parallel.context), where that is not one causal text of input_ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// The tokens that a list of layers runs on.
struct TokenStream {
  std::string prefix = {};           // of the names of their masks and documents: "decoder_"
  std::int64_t tokens = 0;           // of each sample
  bool causal = false;               // no token sees one behind it
  std::vector<std::string> entries;  // the entries of a batch that are sharded, [samples, tokens, ...]
};

// Of a policy that states context_heads: what else there is to know. A policy without it has one causal stream, and
// every entry [samples, tokens, ...] is of its tokens.
class SharesStreams {
 public:
  virtual ~SharesStreams() = default;
  // One for each list of layers. Of a batch of full sequences; its entries may be on the meta device.
  virtual std::vector<TokenStream> token_streams(const torch::nn::Module& model, const TensorDict& batch) const = 0;
  // The batch with what forward() would make of neighbouring tokens.
  virtual TensorDict completed(const torch::nn::Module&, TensorDict batch) const { return batch; }
  // forward() gives what every rank has whole, not outputs of its tokens: they are compared with labels on one rank.
  virtual bool gathers_outputs(const torch::nn::Module&) const { return false; }
};

}  // namespace gantry

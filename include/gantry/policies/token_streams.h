// The token streams of a model whose ranks share sequences (parallel.context).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gantry {

// The tokens that a list of layers runs on.
struct TokenStream {
  std::string prefix = {};           // prefix of the names of its masks and documents, such as "decoder_"
  std::int64_t tokens = 0;           // number of tokens per sample
  bool causal = false;               // no token attends to later ones
  std::vector<std::string> entries;  // the entries of a batch that are sharded, [samples, tokens, ...]
};

// A base class of earlier policies with several streams. Its functions are those of EarlierBatchUse (earlier_split.h).
class SharesStreams {
 public:
  virtual ~SharesStreams() = default;
};

}  // namespace gantry

// From tokens back to text: tokenizer.json's decoder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gantry/data/tokenizers/json_file.h"

namespace gantry {

class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  // The texts of the tokens, which are put together one after the other. Any thread may call it.
  virtual std::vector<std::string> apply(std::vector<std::string> tokens) const = 0;
};

// Metaspace, WordPiece, Replace, ByteFallback, Fuse, Strip, or a Sequence of them. InputError names a type that is not
// supported.
std::unique_ptr<TokenDecoder> read_decoder(const JsonView& view);

}  // namespace gantry

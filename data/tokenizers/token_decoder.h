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

// BPEDecoder, ByteFallback, ByteLevel, CTC, Fuse, Metaspace, Replace, Strip, WordPiece, or a Sequence of them. Throws
// InputError that names an unsupported type.
std::unique_ptr<TokenDecoder> read_decoder(const JsonView& view);

std::unique_ptr<TokenDecoder> make_joining_decoder();  // joins the tokens without a change

}  // namespace gantry

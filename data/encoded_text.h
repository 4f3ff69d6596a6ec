// Text as tokens of a model's own tokenizer, encoded when it is opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gantry/data/corpus/packed_dataset.h"
#include "gantry/data/encoding_cache.h"
#include "gantry/data/tokenizers/text_ends.h"

namespace gantry {

// Returns the tokenizer of text: `stated` (data.tokenizer) where it is not empty, else the files in `model_path`, else
// "bytes" for a vocabulary that is the 256 bytes. ConfigError where none of these is there.
std::string choose_text_tokenizer(const std::string& stated, const std::string& model_path,
                                  std::int64_t vocabulary_size);

// How text is encoded.
struct TextEncoding {
  std::string tokenizer;
  TextEnds ends = {};
  EncodingResources encoding = {};
};

// All files one after the other as one row of tokens, each a document that is encoded for itself, between the special
// tokens of a text to train on, and encoded once (encoding_cache.h). `place` names the files in
// errors. InputError for more than 1 GiB of text, for fewer than sequence_length + 1 tokens, for a token outside 0 ..
// vocabulary_size - 1, and for files and tokenizers that can't be read.
std::unique_ptr<PackedDataset> open_encoded_text(const std::vector<std::filesystem::path>& files,
                                                 const TextEncoding& encoding, std::int64_t sequence_length,
                                                 std::int64_t vocabulary_size, const std::string& place,
                                                 const OpenProgress& progress = no_progress);

}  // namespace gantry

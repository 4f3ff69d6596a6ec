// Text files as tokens of a model's tokenizer, encoded when they are opened.
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

// Returns the tokenizer for text: `stated` (data.tokenizer) if it is not empty, else the files in
// `model_path`, else "bytes" if the vocabulary is the 256 bytes. Throws ConfigError if none of them applies.
std::string choose_text_tokenizer(const std::string& stated, const std::string& model_path,
                                  std::int64_t vocabulary_size);

// Settings for the encoding of text.
struct TextEncoding {
  std::string tokenizer;
  TextEnds ends = {};
  EncodingResources encoding = {};
};

// Concatenates the tokens of all files. Each file is a document, which is encoded separately, between the
// special tokens of a training text. The tokens are cached (encoding_cache.h). `place` names the files in
// errors.
// Throws InputError for more than 1 GiB of text, for fewer than sequence_length + 1 tokens, for a token
// outside 0 .. vocabulary_size - 1, and for files and tokenizers that cannot be read.
std::unique_ptr<PackedDataset> open_encoded_text(const std::vector<std::filesystem::path>& files,
                                                 const TextEncoding& encoding, std::int64_t sequence_length,
                                                 std::int64_t vocabulary_size, const std::string& place,
                                                 const OpenProgress& progress = no_progress);

}  // namespace gantry

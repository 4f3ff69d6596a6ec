// Converts the files of older tokenizers to the contents of a tokenizer.json, as Hugging Face's transformers does.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

struct ConvertedTokenizer {
  nlohmann::json file;           // a tokenizer.json
  std::filesystem::path path;    // for messages; in the directory of the files
  SpecialTokenIds special = {};  // used if the directory's files do not name them
  bool follows_flags = true;     // add_bos_token and add_eos_token of tokenizer_config.json replace the post-processor
};

// vocab.json and merges.txt in `folder`. The tokenizer_class of tokenizer_config.json decides the other parts: GPT2
// (also without a class), Roberta, Whisper, CLIP or Qwen2. Throws InputError for another class.
ConvertedTokenizer convert_vocab_json(const std::filesystem::path& folder);

// BERT's vocab.txt. begin is [CLS], end is [SEP]. Throws InputError for a tokenizer_class that is not like BERT's.
ConvertedTokenizer convert_vocab_txt(const std::filesystem::path& path);

// A SentencePiece model (*.model), as transformers 5.23 reads the directory of a model without tokenizer.json: Llama's
// kind (BPE) or T5's (Unigram). Control symbols and the added tokens of tokenizer_config.json (added_tokens_decoder,
// extra_ids) and added_tokens.json are found in text. BPE with "legacy": true puts a blank before every text between
// special tokens, otherwise only at the start of the whole text.
ConvertedTokenizer convert_sentence_piece(const std::filesystem::path& path, const SpecialTokenIds& special);

// tiktoken's ranks (*.tiktoken or *.model). Ids equal those of tiktoken with all special tokens allowed. The pattern
// and the special tokens are those of tokenizer_config.json (pat_str, added_tokens_decoder and tokens without an id,
// which get the next ids), else those of a published tokenizer with the same number of ranks. Throws InputError for
// another number of ranks without pat_str.
ConvertedTokenizer convert_tiktoken(const std::filesystem::path& path);

}  // namespace gantry

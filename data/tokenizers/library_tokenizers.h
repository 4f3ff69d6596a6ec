// Tokenizers whose algorithm lives elsewhere, behind the one interface.
#pragma once

#include <filesystem>
#include <memory>

#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

// A SentencePiece model (*.model), run by Google's library. Its control symbols (<s>, </s>) are not found in text.
std::unique_ptr<Tokenizer> load_sentence_piece(const std::filesystem::path& path);

// The same as the tokenizer of a model's folder without tokenizer.json, as Hugging Face's AutoTokenizer (5.23) reads it
// to a tokenizer.json of Llama's kind (BPE) or T5's (Unigram): control symbols and the added tokens of
// tokenizer_config.json (added_tokens_decoder, extra_ids) and added_tokens.json are found in text. Of BPE, with
// "legacy": true every text between them has a blank before it, else only what begins the whole text. special() follows
// the files beside the model.
std::unique_ptr<Tokenizer> load_sentence_piece_folder(const std::filesystem::path& path);

// BERT's WordPiece (a vocab.txt); begin is [CLS], end is [SEP]. decode joins words by spaces as Hugging Face's decoder
// does, so that it is not the exact text.
std::unique_ptr<Tokenizer> load_word_piece(const std::filesystem::path& path);

}  // namespace gantry

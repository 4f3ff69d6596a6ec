// Tokenizers whose algorithm lives elsewhere, behind the one interface.
#pragma once

#include <filesystem>
#include <memory>

#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

// A SentencePiece model (*.model), run by Google's library. Its control symbols (<s>, </s>) are not found in text.
std::unique_ptr<Tokenizer> load_sentence_piece(const std::filesystem::path& path);

// BERT's WordPiece (a vocab.txt); begin is [CLS], end is [SEP]. decode joins words by spaces as Hugging Face's decoder
// does, so that it is not the exact text.
std::unique_ptr<Tokenizer> load_word_piece(const std::filesystem::path& path);

}  // namespace gantry

// SentencePiece models that Google's library runs.
#pragma once

#include <filesystem>
#include <memory>

#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

// A SentencePiece model (*.model) by itself. Its control symbols (<s>, </s>) are not found in text.
std::unique_ptr<Tokenizer> load_sentence_piece(const std::filesystem::path& path);

}  // namespace gantry

// Makes a tokenizer.json from text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gantry/data/corpus/documents.h"

namespace gantry {

enum class TokenizerModel {
  kPairs,   // byte-level BPE like GPT-2's: any bytes can be encoded
  kUnigram  // Unigram with byte fallback, by the trainer of SentencePiece: Kudo, arXiv 1804.10959
};

struct TokenizerTraining {
  std::vector<std::string> files;
  DocumentOptions documents;
  std::string folder;  // directory of tokenizer.json and tokenizer_config.json; it is created
  TokenizerModel model = TokenizerModel::kPairs;
  std::int64_t vocabulary_size = 32000;
  std::int64_t min_frequency = 2;     // occurrences of a pair that becomes a token; kPairs only
  std::vector<std::string> specials;  // the first tokens; the first one is the end token
  int threads = 1;
};

struct TokenizerTrainingSummary {
  std::int64_t documents = 0, bytes = 0;
  std::int64_t tokens = 0;  // in the vocabulary
  double seconds = 0;
};

// The files depend on the text and the training alone, not on the number of threads. Throws InputError for text that
// cannot be read, for files without text, and for a directory that has a tokenizer already. Throws UsageError or
// InputError for a vocabulary that is too small or too large for the text, and ResourceError for a full disk.
TokenizerTrainingSummary train_tokenizer(const TokenizerTraining& training);

}  // namespace gantry

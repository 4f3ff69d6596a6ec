// Text files to Megatron's .bin and .idx, by a tokenizer, over several threads.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gantry/data/corpus/documents.h"
#include "gantry/data/corpus/megatron.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

struct CorpusSummary {
  std::int64_t documents = 0, empty_documents = 0;  // the empty ones are left out
  std::int64_t replaced_documents = 0;              // with bytes that are no UTF-8, read as U+FFFD
  std::int64_t tokens = 0;
  std::int64_t bytes_read = 0, bytes = 0;  // of the files, so far and in all
  double seconds = 0;
  TokenType type = TokenType::kUint16;
};

struct CorpusOptions {
  std::vector<std::string> files;
  std::string output;  // PREFIX of PREFIX.bin and PREFIX.idx; its folder is made
  DocumentOptions documents;
  bool append_end = false;  // the tokenizer's end token after each document
  int threads = 1;
  std::function<void(const CorpusSummary&)> progress;  // after each batch of documents; may be empty
};

// The files depend on the text, the tokenizer and append_end alone. UsageError for append_end without an end token;
// InputError for what can't be read, with its place, or files without a token; ResourceError for a full disk.
CorpusSummary build_corpus(const Tokenizer& tokenizer, const CorpusOptions& options);

}  // namespace gantry

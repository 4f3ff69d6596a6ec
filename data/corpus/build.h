// Tokenizes text files in several threads, and writes Megatron's .bin and .idx files.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gantry/data/corpus/documents.h"
#include "gantry/data/corpus/megatron.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

struct CorpusSummary {
  std::int64_t documents = 0, empty_documents = 0;  // `documents` excludes empty ones, which are skipped
  std::int64_t replaced_documents = 0;              // documents with invalid UTF-8, which is read as U+FFFD
  std::int64_t tokens = 0;
  std::int64_t bytes_read = 0, bytes = 0;  // bytes of the files: read so far, and in total
  double seconds = 0;
  TokenType type = TokenType::kUint16;
};

struct CorpusOptions {
  std::vector<std::string> files;
  std::string output;  // PREFIX of PREFIX.bin and PREFIX.idx; its directory is created
  DocumentOptions documents;
  bool append_end = false;  // the tokenizer's end token after each document
  int threads = 1;
  std::function<void(const CorpusSummary&)> progress;  // after each batch of documents; may be empty
};

// The written files depend only on the text, the tokenizer and append_end. Throws UsageError for append_end
// if the tokenizer has no end token. Throws InputError for input that cannot be read, with its location, and
// for files without a token. Throws ResourceError if the disk is full.
CorpusSummary build_corpus(const Tokenizer& tokenizer, const CorpusOptions& options);

}  // namespace gantry

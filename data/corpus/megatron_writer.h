// Writes Megatron's PREFIX.bin and PREFIX.idx. A PREFIX.idx always belongs to a complete PREFIX.bin.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gantry/data/corpus/megatron.h"

namespace gantry {

// Tokens are written to PREFIX.bin.partial as they arrive. The lengths stay in memory, 4 bytes per sequence.
// finish() syncs both files, removes an old PREFIX.idx, and renames first .bin, then .idx. So the two files
// match even if the machine stops at any time. Without finish() the destructor removes the partial files.
class MegatronWriter {
 public:
  // Throws ResourceError if the files cannot be created, and UsageError if another writer uses them.
  MegatronWriter(const std::string& prefix, TokenType type);
  MegatronWriter(const MegatronWriter&) = delete;
  MegatronWriter& operator=(const MegatronWriter&) = delete;
  ~MegatronWriter();

  // Throws InputError for a token that does not fit into the type, and for more than 2^31 - 1 tokens. Throws
  // ResourceError if the disk is full.
  void append_sequence(std::span<const std::int64_t> tokens);
  void end_document();  // the sequences since the last call are a document
  void finish();

  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const { return static_cast<std::int64_t>(documents_.size()) - 1; }

 private:
  class Output;

  std::filesystem::path data_path_, index_path_;
  TokenType type_;
  std::unique_ptr<Output> data_;
  std::int64_t tokens_ = 0;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int64_t> documents_{0};
};

}  // namespace gantry

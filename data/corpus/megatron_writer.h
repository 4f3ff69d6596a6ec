// Writes Megatron's PREFIX.bin and PREFIX.idx, so that either both are there and whole, or neither is new.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gantry/data/corpus/megatron.h"

namespace gantry {

// Tokens go to PREFIX.bin.partial as they come; the lengths stay in memory, 4 bytes per sequence. finish() syncs, takes
// an old PREFIX.idx away, and renames .bin, then .idx: whenever the machine stops, an .idx stands only beside its own
// .bin. Without finish() the destructor removes the partial files.
class MegatronWriter {
 public:
  // ResourceError where the files can't be made; UsageError where another one writes there.
  MegatronWriter(const std::string& prefix, TokenType type);
  MegatronWriter(const MegatronWriter&) = delete;
  MegatronWriter& operator=(const MegatronWriter&) = delete;
  ~MegatronWriter();

  // InputError for a token that the type can't hold, or more than 2^31 - 1 of them; ResourceError for a full disk.
  void append_sequence(std::span<const std::int64_t> tokens);
  void end_document();  // of the sequences since the last one
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

// Megatron's indexed dataset: PREFIX.bin holds the tokens, PREFIX.idx says where each sequence lies.
//
// PREFIX.idx, little-endian: "MMIDIDX\0\0", version uint64 = 1, type uint8 (TokenType), sequences n uint64, document
// indices d uint64, n lengths int32 in tokens, n places int64 in bytes of PREFIX.bin, d indices int64 (document k is
// sequences [index k, index k + 1), so that the first is 0 and the last n), and, in multimodal sets, n modes int8.
// Source: megatron/core/datasets/indexed_dataset.py.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gantry/core/mapped_file.h"

namespace gantry {

enum class TokenType : std::uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat64 = 6,
  kFloat32 = 7,
  kUint16 = 8
};

std::string token_type_name(TokenType type);
std::int64_t token_type_bytes(TokenType type);
// Megatron's choice: uint16 below 65500 tokens, int32 else.
TokenType token_type_for(std::int64_t vocabulary_size);

// What an index says, checked whole against the size of its .bin. Memory: 8 bytes per sequence. Keeps `bytes` by
// reference.
class MegatronIndex {
 public:
  // `path` and `data_name` (of data_bytes) are for messages. InputError says which entry and number is wrong.
  MegatronIndex(std::span<const std::byte> bytes, std::string path, std::int64_t data_bytes,
                const std::string& data_name);

  TokenType type() const { return type_; }
  std::int64_t sequences() const { return static_cast<std::int64_t>(boundaries_.size()) - 1; }
  std::int64_t documents() const { return documents_; }
  std::int64_t tokens() const { return boundaries_.back(); }
  std::int64_t length(std::int64_t sequence) const { return boundaries_[sequence + 1] - boundaries_[sequence]; }
  std::int64_t place(std::int64_t sequence) const;  // in bytes of the .bin
  // The first sequence of a document; for documents() the number of sequences.
  std::int64_t document_begin(std::int64_t document) const;
  std::int64_t document_of(std::int64_t sequence) const;  // which it is of
  // boundaries()[s]: tokens of all sequences before s; sequences() + 1 entries. PackedSequences takes it.
  std::span<const std::int64_t> boundaries() const { return boundaries_; }
  bool has_modes() const { return has_modes_; }

 private:
  void check_header();
  void check_sequences(std::int64_t data_bytes, const std::string& data_name);
  void check_documents() const;

  std::span<const std::byte> bytes_;
  std::string path_;
  TokenType type_ = TokenType::kUint16;
  std::int64_t documents_ = 0;
  std::size_t lengths_at_ = 0, places_at_ = 0, documents_at_ = 0;
  bool has_modes_ = false;
  std::vector<std::int64_t> boundaries_;
};

// Both files through the memory map. Any thread may read.
class MegatronFiles {
 public:
  // `prefix` with or without .bin or .idx. InputError says which file is wrong.
  explicit MegatronFiles(const std::string& prefix);

  TokenType type() const { return index_.type(); }
  std::int64_t sequences() const { return index_.sequences(); }
  std::int64_t documents() const { return index_.documents(); }
  std::int64_t tokens() const { return index_.tokens(); }
  std::int64_t length(std::int64_t sequence) const { return index_.length(sequence); }
  std::int64_t document_begin(std::int64_t document) const { return index_.document_begin(document); }
  std::int64_t document_of(std::int64_t sequence) const { return index_.document_of(sequence); }
  std::span<const std::int64_t> boundaries() const { return index_.boundaries(); }
  bool has_modes() const { return index_.has_modes(); }

  // tokens[0 .. count) = tokens [offset, offset + count) of a sequence. UsageError outside of it; InputError for a
  // float that is no whole number.
  void read(std::int64_t sequence, std::int64_t offset, std::int64_t count, std::int64_t* tokens) const;

 private:
  MappedFile index_file_, data_;
  MegatronIndex index_;
};

}  // namespace gantry

// Megatron's indexed data sets: PREFIX.bin has the tokens, PREFIX.idx the positions of the sequences.
//
// The layout of PREFIX.idx, little-endian (source: megatron/core/datasets/indexed_dataset.py):
//
//   "MMIDIDX\0\0"
//   uint64    version = 1
//   uint8     type of the tokens (TokenType)
//   uint64    n, the number of sequences
//   uint64    d, the number of document indices
//   int32[n]  lengths of the sequences in tokens
//   int64[n]  positions of the sequences in PREFIX.bin, in bytes
//   int64[d]  document indices: document k has the sequences [index k, index k + 1); the first is 0, the last is n
//   int8[n]   modes, in multimodal data sets only
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
// Megatron's rule: uint16 for vocabularies below 65500 tokens, otherwise int32.
TokenType token_type_for(std::int64_t vocabulary_size);

// A parsed index, fully checked against the size of its .bin. Needs 8 bytes of memory per sequence. Refers to `bytes`,
// which must outlive it.
class MegatronIndex {
 public:
  // `path` and `data_name` (of the data_bytes bytes) are for messages. Throws InputError with the faulty entry and
  // number.
  MegatronIndex(std::span<const std::byte> bytes, std::string path, std::int64_t data_bytes,
                const std::string& data_name);

  TokenType type() const { return type_; }
  std::int64_t sequences() const { return static_cast<std::int64_t>(boundaries_.size()) - 1; }
  std::int64_t documents() const { return documents_; }
  std::int64_t tokens() const { return boundaries_.back(); }
  std::int64_t length(std::int64_t sequence) const { return boundaries_[sequence + 1] - boundaries_[sequence]; }
  std::int64_t place(std::int64_t sequence) const;  // position in bytes of the .bin
  // The first sequence of a document; for document = documents(), the number of sequences.
  std::int64_t document_begin(std::int64_t document) const;
  std::int64_t document_of(std::int64_t sequence) const;  // the document of a sequence
  // boundaries()[s] is the number of tokens of all sequences before s; sequences() + 1 entries. For PackedSequences.
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

// Both files, mapped into memory. Thread-safe.
class MegatronFiles {
 public:
  // `prefix` with or without .bin or .idx. Throws InputError with the faulty file.
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

  // Copies tokens [offset, offset + count) of a sequence to tokens[0 .. count). Throws UsageError outside of the
  // sequence, and InputError for a floating-point value that is not an integer.
  void read(std::int64_t sequence, std::int64_t offset, std::int64_t count, std::int64_t* tokens) const;

 private:
  MappedFile index_file_, data_;
  MegatronIndex index_;
};

}  // namespace gantry

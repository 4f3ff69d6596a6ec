// Rows of tokens that were encoded once, in a file that is mapped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gantry/checkpoint/format/files.h"
#include "gantry/core/mapped_file.h"

namespace gantry {

// Tokens [first, second) of a row.
struct TokenRange {
  std::int32_t first = 0, second = 0;
  bool operator==(const TokenRange&) const = default;
};

// A row without its tokens and ranges. The reader of the rows gives the numbers their meaning.
struct RowFacts {
  std::int64_t file = 0, line = 0;  // where it was read
  std::int64_t flags = 0;
};

struct EncodedRow {
  std::span<const std::int32_t> tokens;
  std::span<const TokenRange> ranges;
  RowFacts facts;
};

// Rows in their stored form: all tokens, a record for each row, all ranges, and a note. A footer has the counts, and
// the XXH3 hash of everything before it. Numbers have the byte order of the host.
class EncodedRows {
 public:
  explicit EncodedRows(MappedFile file);

  // False for bytes that are incomplete, damaged, or of another version. Then nothing else may be called.
  bool is_sound() const { return is_sound_; }
  std::size_t size() const { return records_.size(); }
  EncodedRow row(std::size_t index) const;
  std::string_view note() const { return note_; }

 private:
  struct Record {
    RowFacts facts;
    std::uint64_t token = 0, range = 0;  // the row's first ones
  };
  struct Footer;
  friend class EncodedRowsWriter;
  void read();
  template <class Entry>
  std::span<const Entry> entries(std::uint64_t first, std::uint64_t count) const;

  MappedFile file_;
  std::span<const std::int32_t> tokens_;
  std::span<const Record> records_;
  std::span<const TokenRange> ranges_;
  std::string_view note_;
  bool is_sound_ = false;
};

// Writes rows one after the other. Records and ranges are kept in memory until finish().
class EncodedRowsWriter {
 public:
  using Write = std::function<void(const void* data, std::size_t bytes)>;
  explicit EncodedRowsWriter(Write write) : write_(std::move(write)) {}

  void add(std::span<const std::int32_t> tokens, std::span<const TokenRange> ranges, const RowFacts& facts);
  void finish(std::string_view note);  // at most once; `note` is any text

 private:
  void put(const void* data, std::size_t bytes);
  template <class Entry>
  void put_all(std::vector<Entry>& entries);

  Write write_;
  Hasher hasher_;
  std::vector<std::int32_t> waiting_;  // tokens that are written together
  std::vector<EncodedRows::Record> records_;
  std::vector<TokenRange> ranges_;
  std::uint64_t tokens_ = 0;
};

}  // namespace gantry

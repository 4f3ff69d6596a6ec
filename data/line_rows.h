// The lines of text files as rows of tokens, one row per usable line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gantry/core/error.h"
#include "gantry/data/corpus/line_file.h"
#include "gantry/data/encoding_cache.h"

namespace gantry {

// Error for a line that cannot be trained on, which data.bad_lines can skip.
struct BadLine : InputError {
  using InputError::InputError;
};

// Error for a line without a token in the loss.
struct UntrainedLine : BadLine {
  using BadLine::BadLine;
};

using LinePaths = std::vector<std::filesystem::path>;

struct FoundLine {
  std::size_t file = 0;
  std::int64_t number = 1;  // in the file
  std::string place, text;  // "FILE:NUMBER"
};

// Iterates over the lines of all files, without empty lines.
class FoundLines {
 public:
  explicit FoundLines(const LinePaths& paths) : paths_(paths) {}
  bool next(FoundLine& found);  // false at the end of all files

 private:
  const LinePaths& paths_;
  std::size_t file_ = 0;
  std::unique_ptr<LineFile> open_;
};

struct LineRow {
  std::vector<std::int32_t> tokens;
  std::vector<TokenRange> ranges;
  std::int64_t flags = 0;
};

// Thread-safe functions of an encoder.
struct LineRowEncoder {
  std::function<LineRow(const FoundLine& line)> encode;  // throws BadLine for a line that cannot be used
  std::string note;                                      // kept with the rows
};

struct LineRowsInput {
  EncodingInput input;
  bool stops_at_bad_line = true;  // false: they are counted
  EncodingResources resources;
};

class LineRows {
 public:
  // Calls `open` only if the rows are not found in the cache. Throws the errors of the files and of the encoder, in the
  // order of the lines.
  LineRows(LineRowsInput input, const OpenProgress& progress, const std::function<LineRowEncoder()>& open);

  const EncodedRows& rows() const { return *rows_; }
  // Throws InputError that names `place` if no line can be used. `expected`: a description of the lines.
  void require_rows(const std::string& place, const char* expected) const;
  std::string skipped_in_words() const;  // "3 skipped (2 without a token in the loss), the first: ..."; "" for none
  const std::string& note() const { return note_; }
  // "3 pairs of completions with 60 tokens (20.0 per pair, at most 31)", the images, and the skipped lines; for "pairs
  // of completions" and "pair". `images_in`: the number of images of a row.
  std::string in_words(const char* rows, const char* row, std::size_t (*images_in)(const EncodedRow&)) const;
  std::string place_of(const RowFacts& facts) const;  // FILE:LINE
  // Reads the lines of the rows [first, last) again.
  std::vector<FoundLine> lines_of(std::size_t first, std::size_t last) const;

 private:
  LineRowsInput input_;
  std::shared_ptr<const EncodedRows> rows_;
  std::int64_t skipped_ = 0, untrained_ = 0;  // untrained_: a part of the skipped lines
  std::string first_skipped_, note_;
};

}  // namespace gantry

// The tokens of files of JSON lines, and the samples that they are packed into.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/data/line_encoder.h"
#include "gantry/data/line_images.h"
#include "gantry/data/line_rows.h"

namespace gantry {

class EncodedLines {
 public:
  // Throws the InputErrors of the files, and with rules.bad_lines stop that of the first bad line.
  EncodedLines(const LinePaths& paths, const LineRules& rules, const OpenProgress& progress);

  std::int64_t samples() const { return static_cast<std::int64_t>(first_rows_.size()); }
  const LineRows& lines() const { return lines_; }
  std::string summary() const;  // counts, in one line

  // The documents of a sample are rows first to last - 1. The ranges of a row are the trained tokens.
  struct RowNumbers {
    std::size_t first = 0, last = 0;
  };
  RowNumbers rows_of(std::int64_t sample) const;
  EncodedRow row(std::size_t index) const;
  RowImages images_of(std::size_t index) const;

  // Encodes the lines of a sample again, for display.
  std::vector<LineTokens> lines_of(std::int64_t sample) const;

 private:
  void pack();

  LineRules rules_;
  LineRows lines_;
  std::vector<std::size_t> first_rows_;  // the first row of each sample
  std::int64_t tokens_ = 0, trained_ = 0, longest_ = 0, truncated_ = 0, chats_ = 0;
  std::size_t images_ = 0;
};

}  // namespace gantry

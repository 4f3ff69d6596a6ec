// Where samples begin in files of JSON lines, and what is in them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gantry/core/mapped_file.h"
#include "gantry/data/line_encoder.h"

namespace gantry {

using LinePaths = std::vector<std::filesystem::path>;

class LineIndex {
 public:
  // Encodes every line of the files. Their InputErrors, and with rules.bad_lines stop those of the first bad line.
  LineIndex(const LinePaths& paths, const LineRules& rules);

  std::int64_t samples() const { return static_cast<std::int64_t>(starts_.size()); }
  std::int64_t skipped() const { return skipped_; }
  const std::string& first_skipped() const { return first_skipped_; }  // its error, or ""
  // What was found, in one line.
  std::string summary() const;

  // The documents of a sample, in order. Any thread may call it.
  std::vector<LineTokens> lines_of(std::int64_t sample, bool for_display = false) const;

 private:
  // A line, and what is behind it.
  struct Place {
    std::size_t file = 0;
    std::uint64_t offset = 0;
    std::int64_t line = 1;  // counted from 1
  };
  struct SampleStart {
    Place place;
    std::int64_t documents = 0;
  };
  struct FoundLine {
    Place place;
    std::string_view text;
  };
  // Of one line: its tokens' counts, or why it is bad.
  struct Outcome {
    std::int64_t tokens = 0, trained = 0;
    bool was_cut = false, is_chat = false;
    std::string fault;  // of a bad line
    std::exception_ptr failure;
  };

  bool is_pairs() const { return rules_.target_length > 0; }  // then each line is a sample of its own
  // The next line that is not empty; false at the end of all files.
  bool next_line(Place& place, FoundLine& found) const;
  std::string name_of(const Place& place) const;
  Outcome outcome_of(const FoundLine& line) const;
  std::vector<Outcome> outcomes_of(const std::vector<FoundLine>& lines) const;
  void take(const Place& place, const Outcome& outcome);

  LineRules rules_;
  LineEncoder encoder_;
  std::vector<MappedFile> files_;
  std::vector<SampleStart> starts_;
  std::int64_t left_ = 0;  // places of the last sample that are free
  std::int64_t lines_ = 0, tokens_ = 0, trained_ = 0, longest_ = 0, skipped_ = 0, cut_ = 0, chats_ = 0;
  std::string first_skipped_;
};

}  // namespace gantry

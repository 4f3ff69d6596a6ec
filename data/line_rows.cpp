#include "gantry/data/line_rows.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/base/parallel_for.h"
#include "gantry/data/line_images.h"

namespace gantry {
namespace {

// Lines that are encoded side by side before their rows are written in order.
constexpr std::size_t kLinesAtOnce = 4096;
// Fewer are not worth a thread.
constexpr std::size_t kLinesOfThread = 64;

// A line's row, or the reason why it has none.
struct Outcome {
  LineRow row;
  std::string fault;
  bool is_untrained = false;
  std::exception_ptr failure;
};

std::string place_of(const LinePaths& paths, std::size_t file, std::int64_t line) {
  return fmt::format("{}:{}", paths[file].string(), line);
}

Outcome outcome_of(const LineRowEncoder& encoder, const FoundLine& line, bool stops) try {
  return {.row = encoder.encode(line), .fault = "", .failure = nullptr};
} catch (const BadLine& error) {
  return {.row = {},
          .fault = error.what(),
          .is_untrained = dynamic_cast<const UntrainedLine*>(&error) != nullptr,
          .failure = stops ? std::current_exception() : nullptr};
} catch (...) {
  return {.row = {}, .fault = "", .failure = std::current_exception()};
}

std::vector<FoundLine> next_lines(FoundLines& found) {
  std::vector<FoundLine> lines;
  for (FoundLine line; lines.size() < kLinesAtOnce && found.next(line);) lines.push_back(std::move(line));
  return lines;
}

// The count of bad lines, and the first one. Its reason has no place, because an equal file has another name.
struct SkippedLines {
  std::int64_t count = 0, untrained = 0, line = 0;
  std::size_t file = 0;
  std::string reason;

  void add(const FoundLine& found, const Outcome& outcome) {
    untrained += outcome.is_untrained ? 1 : 0;
    if (count++ > 0) return;
    file = found.file;
    line = found.number;
    reason = outcome.fault;
    if (reason.starts_with(found.place)) reason.erase(0, found.place.size());
  }
};

void write_rows_of_lines(const LineRowsInput& input, const LineRowEncoder& encoder, const OpenProgress& progress,
                         EncodedRowsWriter& rows) {
  FoundLines found(input.input.files);
  SkippedLines skipped;
  for (auto lines = next_lines(found); !lines.empty(); lines = next_lines(found)) {
    std::vector<Outcome> outcomes(lines.size());
    const std::size_t threads = std::min(encoding_threads(input.resources), lines.size() / kLinesOfThread + 1);
    parallel_for(lines.size(), threads,
                 [&](std::size_t i) { outcomes[i] = outcome_of(encoder, lines[i], input.stops_at_bad_line); });
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const Outcome& outcome = outcomes[i];
      const LineRow& row = outcome.row;
      if (outcome.failure) std::rethrow_exception(outcome.failure);
      if (!outcome.fault.empty())
        skipped.add(lines[i], outcome);
      else
        rows.add(row.tokens, row.ranges,
                 {.file = static_cast<std::int64_t>(lines[i].file), .line = lines[i].number, .flags = row.flags});
    }
    progress(lines.size());
  }
  const nlohmann::json note = {{"skipped", skipped.count}, {"untrained", skipped.untrained}, {"file", skipped.file},
                               {"line", skipped.line},     {"reason", skipped.reason},       {"note", encoder.note}};
  rows.finish(note.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

bool FoundLines::next(FoundLine& found) {
  for (; file_ < paths_.size(); ++file_, open_.reset()) {
    if (!open_) open_ = std::make_unique<LineFile>(paths_[file_]);
    while (open_->next(found.text)) {
      if (found.text.find_first_not_of(" \t\r") == std::string::npos) continue;
      found.file = file_;
      found.number = open_->number();
      found.place = place_of(paths_, file_, found.number);
      return true;
    }
  }
  return false;
}

LineRows::LineRows(LineRowsInput input, const OpenProgress& progress, const std::function<LineRowEncoder()>& open)
    : input_(std::move(input)) {
  rows_ = encoded_rows(input_.resources.cache, input_.input, progress,
                       [&](EncodedRowsWriter& rows) { write_rows_of_lines(input_, open(), progress, rows); });
  const auto note = nlohmann::json::parse(rows_->note());
  note_ = note["note"];
  skipped_ = note["skipped"];
  untrained_ = note["untrained"];
  if (skipped_ > 0)
    first_skipped_ = place_of({.file = note["file"], .line = note["line"]}) + note["reason"].get<std::string>();
}

std::string LineRows::skipped_in_words() const {
  if (skipped_ == 0) return "";
  const std::string untrained = untrained_ > 0 ? fmt::format(" ({} without a token in the loss)", untrained_) : "";
  return fmt::format("{} skipped{}, the first: {}", skipped_, untrained, first_skipped_);
}

std::string LineRows::in_words(const char* rows, const char* row, std::size_t (*images_in)(const EncodedRow&)) const {
  std::size_t tokens = 0, longest = 0, images = 0;
  for (std::size_t i = 0; i < rows_->size(); ++i) {
    const EncodedRow stored = rows_->row(i);
    const std::size_t of_row = images_in(stored), count = without_images(stored, of_row).tokens.size();
    tokens += count;
    longest = std::max(longest, count);
    images += of_row;
  }
  const std::string skipped = skipped_in_words();
  return fmt::format("{} {} with {} tokens ({:.1f} per {}, at most {}){}{}{}", rows_->size(), rows, tokens,
                     static_cast<double>(tokens) / static_cast<double>(rows_->size()), row, longest,
                     images > 0 ? fmt::format("; {} images", images) : "", skipped.empty() ? "" : "; ", skipped);
}

void LineRows::require_rows(const std::string& place, const char* expected) const {
  if (rows_->size() > 0) return;
  throw InputError({place,
                    skipped_ > 0 ? fmt::format("all {} lines were skipped, the first: {}", skipped_, first_skipped_)
                                 : "there are no lines that are not empty",
                    expected, ""});
}

std::string LineRows::place_of(const RowFacts& facts) const {
  return gantry::place_of(input_.input.files, static_cast<std::size_t>(facts.file), facts.line);
}

std::vector<FoundLine> LineRows::lines_of(std::size_t first, std::size_t last) const {
  std::vector<FoundLine> lines;
  std::unique_ptr<LineFile> open;
  for (std::size_t row = first; row < last; ++row) {
    const RowFacts facts = rows_->row(row).facts;
    FoundLine found{
        .file = static_cast<std::size_t>(facts.file), .number = facts.line, .place = place_of(facts), .text = ""};
    if (!open || lines.back().file != found.file) open = std::make_unique<LineFile>(input_.input.files[found.file]);
    while (open->number() < found.number && open->next(found.text)) {
    }
    lines.push_back(std::move(found));
  }
  return lines;
}

}  // namespace gantry

#include "gantry/data/encoded_lines.h"

#include <algorithm>
#include <fmt/format.h>

namespace gantry {
namespace {

// Flags of a row. The others are the number of its images, whose records follow the tokens and the trained ranges.
constexpr std::int64_t kWasTruncated = 1, kIsChat = 2, kImage = 4;

std::size_t count_images(const EncodedRow& row) { return static_cast<std::size_t>(row.facts.flags / kImage); }

LineRow row_of(const LineTokens& line) {
  LineRow row{.tokens = line.tokens,
              .ranges = {},
              .flags = (line.was_truncated ? kWasTruncated : 0) + (line.is_chat ? kIsChat : 0) +
                       kImage * static_cast<std::int64_t>(line.images.size())};
  for (const auto& [first, second] : line.trained)
    row.ranges.push_back({static_cast<std::int32_t>(first), static_cast<std::int32_t>(second)});
  append_images(line.images, row);
  return row;
}

LineRowEncoder row_encoder(const LineRules& rules) {
  const auto encoder = std::make_shared<const LineEncoder>(rules);
  const std::string split = encoder->split_marks();
  return {.encode = [encoder](const FoundLine& line) { return row_of(encoder->encode(line.text, line.place)); },
          .note = encoder->chat_template() + (split.empty() ? "" : ", of which " + split)};
}

}  // namespace

EncodedLines::EncodedLines(const LinePaths& paths, const LineRules& rules, const OpenProgress& progress)
    : rules_(rules), lines_(rows_input("lines", paths, rules), progress, [&] { return row_encoder(rules); }) {
  pack();
}

void EncodedLines::pack() {
  const bool is_pairs = rules_.target_length > 0;  // then each line is a sample of its own
  std::int64_t free = 0;                           // places of the last sample
  for (std::size_t i = 0; i < lines_.rows().size(); ++i) {
    const EncodedRow row = this->row(i);
    const auto count = static_cast<std::int64_t>(row.tokens.size());
    tokens_ += count;
    for (const auto& [first, second] : row.ranges) trained_ += std::max(0, second - std::max(1, first));
    longest_ = std::max(longest_, count);
    truncated_ += (row.facts.flags & kWasTruncated) != 0 ? 1 : 0;
    chats_ += (row.facts.flags & kIsChat) != 0 ? 1 : 0;
    images_ += count_images(row);
    if (first_rows_.empty() || count - 1 > free || is_pairs) {
      first_rows_.push_back(i);
      free = rules_.sequence_length;
    }
    free -= count - 1;
  }
}

std::string EncodedLines::summary() const {
  const auto lines = static_cast<std::int64_t>(lines_.rows().size());
  const bool is_pairs = rules_.target_length > 0;
  const std::int64_t filled = is_pairs ? tokens_ : tokens_ - lines,
                     room = samples() * (rules_.sequence_length + rules_.target_length);
  std::string text = fmt::format(
      "{} lines with {} tokens ({:.1f} per line, at most {}), {} of them in the loss; {} samples, {:.1f}% full", lines,
      tokens_, static_cast<double>(tokens_) / static_cast<double>(lines), longest_, trained_, samples(),
      100 * static_cast<double>(filled) / static_cast<double>(room));
  if (truncated_ > 0 && is_pairs)
    text += fmt::format("; {} truncated to {} and {} tokens", truncated_, rules_.sequence_length, rules_.target_length);
  else if (truncated_ > 0)
    text += fmt::format("; {} truncated to {} tokens", truncated_, rules_.sequence_length + 1);
  if (images_ > 0) text += fmt::format("; {} images", images_);
  if (const std::string skipped = lines_.skipped_in_words(); !skipped.empty()) text += "; " + skipped;
  if (chats_ > 0) text += fmt::format("; {} chats with the template {}", chats_, lines_.note());
  return text;
}

EncodedRow EncodedLines::row(std::size_t index) const {
  const EncodedRow row = lines_.rows().row(index);
  return without_images(row, count_images(row));
}

RowImages EncodedLines::images_of(std::size_t index) const {
  const EncodedRow row = lines_.rows().row(index);
  return {images_of_row(row, count_images(row)), lines_.place_of(row.facts)};
}

EncodedLines::RowNumbers EncodedLines::rows_of(std::int64_t sample) const {
  const auto index = static_cast<std::size_t>(sample);
  const bool is_last = index + 1 == first_rows_.size();
  return {first_rows_[index], is_last ? lines_.rows().size() : first_rows_[index + 1]};
}

std::vector<LineTokens> EncodedLines::lines_of(std::int64_t sample) const {
  const auto [first, last] = rows_of(sample);
  const LineEncoder encoder(rules_);
  std::vector<LineTokens> encoded;
  for (const FoundLine& line : lines_.lines_of(first, last))
    encoded.push_back(encoder.encode(line.text, line.place, /*for_display=*/true));
  return encoded;
}

}  // namespace gantry

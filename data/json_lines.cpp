#include "gantry/data/json_lines.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/data/encoded_lines.h"
#include "gantry/data/image_samples.h"

namespace gantry {
namespace {

class JsonLines final : public Dataset {
 public:
  JsonLines(std::unique_ptr<const EncodedLines> lines, std::int64_t sequence_length)
      : lines_(std::move(lines)), length_(sequence_length) {}

  std::int64_t size() const override { return lines_->samples(); }
  std::int64_t sequence_length() const override { return length_; }
  std::vector<SampleEntry> entries() const override { return packed_entries(length_); }
  std::string summary() const override { return lines_->summary(); }

  std::vector<SampleToken> tokens_of(std::int64_t sample) const override {
    std::vector<SampleToken> tokens;
    std::int64_t document = 0;
    for (const LineTokens& line : lines_->lines_of(sample)) append_tokens(line, document++, /*is_pair=*/false, tokens);
    return tokens;
  }

  void read(std::int64_t sample, std::int64_t* numbers) const override {
    std::int64_t *ids = numbers, *labels = ids + length_, *documents = labels + length_;
    std::fill(labels, labels + length_, kNotCounted);
    std::int64_t place = 0, document = 0;
    const auto [first_row, last_row] = lines_->rows_of(sample);
    for (std::size_t row = first_row; row < last_row; ++row) {
      const EncodedRow line = lines_->row(row);
      const auto places = static_cast<std::int64_t>(line.tokens.size()) - 1;
      std::copy_n(line.tokens.begin(), places, ids + place);
      std::fill_n(documents + place, places, document++);
      // The label of a position is the token after it.
      for (const auto& [first, second] : line.ranges)
        for (std::int64_t token = std::max(1, first); token < second; ++token)
          labels[place + token - 1] = line.tokens[static_cast<std::size_t>(token)];
      place += places;
    }
    std::fill(ids + place, ids + length_, 0);
    std::fill(documents + place, documents + length_, document);
  }

 private:
  std::unique_ptr<const EncodedLines> lines_;
  std::int64_t length_;
};

// Returns the data set of chats with their images.
std::unique_ptr<Dataset> image_lines(std::unique_ptr<const EncodedLines> lines, const LineRules& rules) {
  const auto images_of = [&lines = *lines](std::int64_t sample) {
    std::vector<RowImages> images;
    const auto [first_row, last_row] = lines.rows_of(sample);
    for (std::size_t row = first_row; row < last_row; ++row) images.push_back(lines.images_of(row));
    return images;
  };
  return with_images(std::make_unique<JsonLines>(std::move(lines), rules.sequence_length), rules.images, images_of);
}

class PairLines final : public Dataset {
 public:
  PairLines(std::unique_ptr<const EncodedLines> lines, const LineRules& rules)
      : lines_(std::move(lines)), prompt_(rules.sequence_length), completion_(rules.target_length) {}

  std::int64_t size() const override { return lines_->samples(); }
  std::int64_t sequence_length() const override { return prompt_; }
  std::vector<SampleEntry> entries() const override { return pair_entries(prompt_, completion_); }
  std::string summary() const override { return lines_->summary(); }

  std::vector<SampleToken> tokens_of(std::int64_t sample) const override {
    std::vector<SampleToken> tokens;
    append_tokens(lines_->lines_of(sample).front(), 0, /*is_pair=*/true, tokens);
    return tokens;
  }

  void read(std::int64_t sample, std::int64_t* numbers) const override {
    const EncodedRow line = lines_->row(lines_->rows_of(sample).first);
    const std::int64_t given = line.ranges.front().first, all = static_cast<std::int64_t>(line.tokens.size());
    std::int64_t *mask = numbers + prompt_, *labels = mask + prompt_;
    std::fill_n(numbers, 2 * prompt_, 0);
    std::fill_n(labels, completion_, kNotCounted);
    std::copy_n(line.tokens.begin(), given, numbers);
    std::fill_n(mask, given, 1);
    std::copy_n(line.tokens.begin() + given, all - given, labels);
  }

 private:
  std::unique_ptr<const EncodedLines> lines_;
  std::int64_t prompt_, completion_;
};

}  // namespace

std::unique_ptr<Dataset> open_json_lines(const LinePaths& files, const LineRules& rules, const std::string& place,
                                         const OpenProgress& progress) {
  auto lines = std::make_unique<const EncodedLines>(files, rules, progress);
  lines->lines().require_rows(place, "lines of JSON to train on");
  if (rules.target_length > 0) return std::make_unique<PairLines>(std::move(lines), rules);
  if (rules.images) return image_lines(std::move(lines), rules);
  return std::make_unique<JsonLines>(std::move(lines), rules.sequence_length);
}

}  // namespace gantry

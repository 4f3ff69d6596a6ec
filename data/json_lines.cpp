#include "gantry/data/json_lines.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <tuple>

#include "gantry/core/error.h"
#include "gantry/data/line_index.h"

namespace gantry {
namespace {

// Indexed once for all ranks of this process that hold it at the same time.
std::shared_ptr<const LineIndex> shared_index(const LinePaths& paths, const LineRules& rules) {
  static std::mutex mutex;
  static std::map<std::pair<LinePaths, LineRules>, std::weak_ptr<const LineIndex>> all;
  const std::lock_guard lock(mutex);
  auto& known = all[{paths, rules}];
  if (auto index = known.lock()) return index;
  auto index = std::make_shared<const LineIndex>(paths, rules);
  known = index;
  return index;
}

class JsonLines final : public Dataset {
 public:
  JsonLines(std::shared_ptr<const LineIndex> index, std::int64_t sequence_length)
      : index_(std::move(index)), length_(sequence_length) {}

  std::int64_t size() const override { return index_->samples(); }
  std::int64_t sequence_length() const override { return length_; }
  std::vector<SampleEntry> entries() const override { return packed_entries(length_); }
  std::string summary() const override { return index_->summary(); }
  bool is_slow() const override { return true; }

  std::vector<SampleToken> tokens_of(std::int64_t sample) const override {
    std::vector<SampleToken> tokens;
    std::int64_t document = 0;
    for (const LineTokens& line : index_->lines_of(sample, /*for_display=*/true))
      append_tokens(line, document++, /*is_pair=*/false, tokens);
    return tokens;
  }

  void read(std::int64_t sample, std::int64_t* numbers) const override {
    std::int64_t *ids = numbers, *labels = ids + length_, *documents = labels + length_;
    std::fill(labels, labels + length_, kNotCounted);
    std::int64_t place = 0, document = 0;
    for (const LineTokens& line : index_->lines_of(sample)) {
      for (std::int64_t token = 0; token < line.places(); ++token) {
        ids[place + token] = line.tokens[static_cast<std::size_t>(token)];
        documents[place + token] = document;
      }
      // A token stands at the place of the one before it.
      for (const auto& [first, second] : line.trained)
        for (std::int64_t token = std::max<std::int64_t>(1, first); token < second; ++token)
          labels[place + token - 1] = line.tokens[static_cast<std::size_t>(token)];
      place += line.places();
      ++document;
    }
    std::fill(ids + place, ids + length_, 0);
    std::fill(documents + place, documents + length_, document);
  }

 private:
  std::shared_ptr<const LineIndex> index_;
  std::int64_t length_;
};

class PairLines final : public Dataset {
 public:
  PairLines(std::shared_ptr<const LineIndex> index, const LineRules& rules)
      : index_(std::move(index)), prompt_(rules.sequence_length), completion_(rules.target_length) {}

  std::int64_t size() const override { return index_->samples(); }
  std::int64_t sequence_length() const override { return prompt_; }
  std::vector<SampleEntry> entries() const override { return pair_entries(prompt_, completion_); }
  std::string summary() const override { return index_->summary(); }
  bool is_slow() const override { return true; }

  std::vector<SampleToken> tokens_of(std::int64_t sample) const override {
    std::vector<SampleToken> tokens;
    append_tokens(index_->lines_of(sample, /*for_display=*/true).front(), 0, /*is_pair=*/true, tokens);
    return tokens;
  }

  void read(std::int64_t sample, std::int64_t* numbers) const override {
    const LineTokens line = index_->lines_of(sample).front();
    const std::int64_t given = line.trained.front().first, all = static_cast<std::int64_t>(line.tokens.size());
    std::int64_t *mask = numbers + prompt_, *labels = mask + prompt_;
    std::fill_n(numbers, 2 * prompt_, 0);
    std::fill_n(labels, completion_, kNotCounted);
    std::copy_n(line.tokens.begin(), given, numbers);
    std::fill_n(mask, given, 1);
    std::copy_n(line.tokens.begin() + given, all - given, labels);
  }

 private:
  std::shared_ptr<const LineIndex> index_;
  std::int64_t prompt_, completion_;
};

}  // namespace

std::unique_ptr<Dataset> open_json_lines(const LinePaths& files, const LineRules& rules, const std::string& place) {
  auto index = shared_index(files, rules);
  if (index->samples() == 0)
    throw InputError({place,
                      index->skipped() > 0 ? fmt::format("all {} lines were skipped, the first: {}", index->skipped(),
                                                         index->first_skipped())
                                           : "there are no lines that are not empty",
                      "lines of JSON to train on", ""});
  if (rules.target_length > 0) return std::make_unique<PairLines>(std::move(index), rules);
  return std::make_unique<JsonLines>(std::move(index), rules.sequence_length);
}

}  // namespace gantry

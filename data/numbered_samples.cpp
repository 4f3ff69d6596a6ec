#include "gantry/data/numbered_samples.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "gantry/core/error.h"
#include "gantry/data/drawn_dataset.h"
#include "gantry/data/sample_numbers.h"

namespace gantry {
namespace {

using Sets = std::vector<std::shared_ptr<const Dataset>>;

class NumberedDataset final : public Dataset {
 public:
  NumberedDataset(std::shared_ptr<const Dataset> given, std::int64_t first, bool held_out)
      : given_(std::move(given)), widths_(widths_of(given_->entries())), first_(first), held_out_(held_out) {}

  std::int64_t size() const override { return given_->size(); }
  std::int64_t sequence_length() const override { return given_->sequence_length(); }
  std::string summary() const override { return given_->summary(); }
  std::vector<SampleToken> tokens_of(std::int64_t index) const override { return given_->tokens_of(index); }
  std::string label_of(std::int64_t index) const override { return given_->label_of(index); }
  bool is_slow() const override { return given_->is_slow(); }
  std::vector<SampleEntry> entries() const override { return with_number(given_->entries()); }

  void read_numbers(std::int64_t index, const NumberRow& row) const override {
    const auto width = widths_.find(row.type());
    if (width != widths_.end()) given_->read_numbers(index, row);
    if (row.type() != NumberType::kInt64) return;
    const std::int64_t number = first_ + index;
    row.as<std::int64_t>()[width == widths_.end() ? 0 : width->second] = held_out_ ? -1 - number : number;
  }

  static std::vector<SampleEntry> with_number(std::vector<SampleEntry> entries) {
    const auto widths = widths_of(entries);
    const auto width = widths.find(NumberType::kInt64);
    entries.push_back({kSampleNumbers, width == widths.end() ? 0 : width->second});
    return entries;
  }

 private:
  std::shared_ptr<const Dataset> given_;
  std::map<NumberType, std::int64_t> widths_;
  std::int64_t first_;
  bool held_out_;
};

class JoinedDatasets final : public Dataset {
 public:
  explicit JoinedDatasets(Sets sets) : sets_(std::move(sets)) {
    for (const auto& each : sets_) ends_.push_back(size() + each->size());
  }
  std::int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  std::int64_t sequence_length() const override { return sets_.front()->sequence_length(); }
  bool is_slow() const override { return sets_.front()->is_slow(); }
  std::vector<SampleEntry> entries() const override { return sets_.front()->entries(); }

  void read_numbers(std::int64_t index, const NumberRow& row) const override {
    const auto set = static_cast<std::size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
    sets_[set]->read_numbers(set == 0 ? index : index - ends_[set - 1], row);
  }

 private:
  Sets sets_;
  std::vector<std::int64_t> ends_;  // number of samples up to the end of each
};

void refuse_drawn(const Dataset& dataset, const std::string& key) {
  if (dynamic_cast<const DrawnDataset*>(&dataset))
    throw ConfigError({key, "the samples of the data differ in each pass, so nothing can be stored for them",
                       "samples that are the same in each pass", "remove the key"});
}

}  // namespace

SampleSource numbered_samples(SampleSource source, bool held_out, const std::string& key) {
  if (source.collate)
    throw ConfigError({key, "the data have images, whose samples differ in length, which is not supported",
                       "texts or tokens in rows of one length", "remove the key"});
  source.entries = NumberedDataset::with_number(std::move(source.entries));
  source.open = [open = std::move(source.open), held_out, key](const OpenProgress& progress) {
    std::vector<WeightedDataset> sets = open(progress);
    std::int64_t first = 0;
    for (auto& [dataset, weight] : sets) {
      refuse_drawn(*dataset, key);
      const std::int64_t size = dataset->size();
      dataset =
          std::make_shared<const NumberedDataset>(std::move(dataset), std::exchange(first, first + size), held_out);
    }
    return sets;
  };
  return source;
}

SampleSource samples_in_order(const SampleSource& source) {
  SampleSource joined = source;
  joined.open = [open = source.open](const OpenProgress& progress) {
    Sets sets;
    for (const auto& each : open(progress)) sets.push_back(each.dataset);
    return std::vector<WeightedDataset>{{std::make_shared<const JoinedDatasets>(std::move(sets)), 1}};
  };
  return joined;
}

}  // namespace gantry

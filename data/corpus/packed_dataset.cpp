#include "gantry/data/corpus/packed_dataset.h"

#include <algorithm>

namespace gantry {
namespace {

class MaskedDocuments final : public Dataset {
 public:
  explicit MaskedDocuments(std::unique_ptr<PackedDataset> packed) : packed_(std::move(packed)) {}

  std::int64_t size() const override { return packed_->size(); }
  std::int64_t sequence_length() const override { return packed_->sequence_length(); }
  std::vector<SampleEntry> entries() const override { return packed_entries(sequence_length()); }

  std::vector<SampleToken> tokens_of(std::int64_t index) const override {
    auto tokens = packed_->tokens_of(index);
    for (std::size_t i = 0, first = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i].document != tokens[i - 1].document) first = i;
      tokens[i].position = static_cast<std::int64_t>(i - first);
      if (i != first) continue;
      tokens[i].is_trained = false;
      tokens[i].why = "first token of the document";
    }
    return tokens;
  }

  void read(std::int64_t index, std::int64_t* numbers) const override {
    const std::int64_t length = sequence_length();
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(length) + 1), documents = tokens;
    packed_->read(index, tokens.data());
    auto place = documents.begin();
    std::int64_t number = 0, last = -1;
    for (const TokenRun& run : packed_->documents(index)) {
      if (last >= 0 && run.document != last) ++number;
      last = run.document;
      place = std::fill_n(place, run.count, number);
    }
    std::copy_n(tokens.begin(), length, numbers);
    for (std::int64_t i = 0; i < length; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const bool follows = documents[at] == documents[at + 1];
      numbers[length + i] = follows ? tokens[at + 1] : kNotCounted;
    }
    std::copy_n(documents.begin(), length, numbers + 2 * length);
  }

 private:
  std::unique_ptr<PackedDataset> packed_;
};

}  // namespace

std::vector<SampleToken> PackedDataset::tokens_of(std::int64_t index) const {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(sequence_length()) + 1);
  read(index, ids.data());
  std::vector<SampleToken> tokens;
  std::int64_t number = 0, last = -1;
  for (const TokenRun& run : documents(index)) {
    if (last >= 0 && run.document != last) ++number;
    last = run.document;
    for (std::int64_t i = 0; i < run.count; ++i) {
      const auto place = static_cast<std::int64_t>(tokens.size());
      tokens.push_back({.id = ids[static_cast<std::size_t>(place)],
                        .document = number,
                        .position = place,
                        .is_trained = place > 0,
                        .why = place > 0 ? "text" : "first token of the sample"});
    }
  }
  return tokens;
}

std::unique_ptr<Dataset> mask_documents(std::unique_ptr<PackedDataset> dataset) {
  return std::make_unique<MaskedDocuments>(std::move(dataset));
}

}  // namespace gantry

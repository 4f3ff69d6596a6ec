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

std::unique_ptr<Dataset> mask_documents(std::unique_ptr<PackedDataset> dataset) {
  return std::make_unique<MaskedDocuments>(std::move(dataset));
}

}  // namespace gantry

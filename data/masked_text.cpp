#include "gantry/data/masked_text.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/data/drawn_dataset.h"
#include "gantry/tensors/philox.h"

namespace gantry {
namespace {

constexpr double kMasked = 0.8, kRandom = 0.1;  // shares of the chosen tokens; the rest stay
constexpr double kWords = 4294967296.0;         // a random word is below it

std::vector<SampleEntry> masked_entries(std::int64_t length) {
  return {{"input_ids", 0, length}, {"labels", length, length}};
}

class MaskedText final : public DrawnDataset {
 public:
  MaskedText(std::shared_ptr<const Dataset> rows, const Masking& masking) : rows_(std::move(rows)), masking_(masking) {}

  std::int64_t size() const override { return rows_->size(); }
  std::int64_t sequence_length() const override { return rows_->sequence_length(); }
  std::string summary() const override { return rows_->summary(); }
  std::vector<SampleEntry> entries() const override { return masked_entries(sequence_length()); }

  std::vector<SampleToken> tokens_of(std::int64_t index) const override {
    auto tokens = rows_->tokens_of(index);
    tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(sequence_length())));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::int64_t id = 0, label = 0;
      mask(tokens[i].id, index, static_cast<std::int64_t>(i), id, label);
      tokens[i].is_trained = label != kNotCounted;
      tokens[i].why = label == kNotCounted        ? "not masked"
                      : id == masking_.mask_token ? "masked"
                      : id == label               ? "masked by itself"
                                                  : "masked by a random token";
    }
    return tokens;
  }

  void read_at(std::int64_t index, std::int64_t place, const NumberRow& row) const override {
    const std::int64_t length = sequence_length();
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(length) + 1);
    rows_->read(index, tokens.data());
    auto *ids = row.as<std::int64_t>(), *labels = ids + length;
    for (std::int64_t i = 0; i < length; ++i) mask(tokens[static_cast<std::size_t>(i)], place, i, ids[i], labels[i]);
  }

 private:
  void mask(std::int64_t token, std::int64_t place, std::int64_t i, std::int64_t& id, std::int64_t& label) const {
    id = token;
    label = kNotCounted;
    if (static_cast<std::size_t>(token) < masking_.special.size() && masking_.special[static_cast<std::size_t>(token)])
      return;
    const PhiloxKey key{masking_.seed, philox_stream("masked tokens", static_cast<std::uint64_t>(i))};
    const auto words = philox(key, static_cast<std::uint64_t>(place));
    if (words[0] / kWords >= masking_.probability) return;
    label = token;
    const double share = words[1] / kWords;
    if (share < kMasked)
      id = masking_.mask_token;
    else if (share < kMasked + kRandom)
      id = static_cast<std::int64_t>(words[2] / kWords * static_cast<double>(masking_.tokens));
  }

  std::shared_ptr<const Dataset> rows_;
  Masking masking_;
};

}  // namespace

Masking make_masking(const Tokenizer& tokenizer, const std::string& path, std::int64_t vocabulary_size) {
  const auto mask = tokenizer.special().mask;
  if (!mask)
    throw InputError({path, "the tokenizer has no mask token, which data.objective mlm needs",
                      "a tokenizer of BERT's kind", "name its mask_token in tokenizer_config.json"});
  if (tokenizer.size() > vocabulary_size)
    throw InputError({path,
                      fmt::format("the tokenizer has {} tokens, but the model's vocabulary is {}", tokenizer.size(),
                                  vocabulary_size),
                      fmt::format("at most {}", vocabulary_size), "use the model's own tokenizer"});
  Masking masking{.mask_token = *mask, .tokens = tokenizer.size()};
  for (std::int64_t id = 0; id < tokenizer.size(); ++id) masking.special.push_back(tokenizer.is_special(id));
  return masking;
}

SampleSource mask_tokens(SampleSource rows, const Masking& masking) {
  rows.entries = masked_entries(rows.sequence_length);
  rows.open = [open = std::move(rows.open), masking](const OpenProgress& progress) {
    auto datasets = open(progress);
    for (auto& each : datasets) each.dataset = std::make_shared<MaskedText>(std::move(each.dataset), masking);
    return datasets;
  };
  return rows;
}

}  // namespace gantry

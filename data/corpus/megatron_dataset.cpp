#include "gantry/data/corpus/megatron_dataset.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/data/corpus/megatron.h"
#include "gantry/data/corpus/packed_dataset.h"

namespace gantry {
namespace {

class MegatronDataset final : public PackedDataset {
 public:
  MegatronDataset(const std::string& prefix, std::int64_t sequence_length, std::int64_t vocabulary_size)
      : prefix_(prefix), files_(prefix), packed_(files_.boundaries(), sequence_length), vocabulary_(vocabulary_size) {
    require_one_sample(files_.tokens(), sequence_length, prefix);
  }

  std::int64_t size() const override { return packed_.size(); }
  std::int64_t sequence_length() const override { return packed_.sequence_length(); }

  // Runs are of sequences, several of which may be one document.
  std::vector<TokenRun> documents(std::int64_t index) const override {
    auto runs = packed_.runs(index);
    for (TokenRun& run : runs) run.document = files_.document_of(run.document);
    return runs;
  }

  void read(std::int64_t index, std::int64_t* tokens) const override {
    for (const auto& run : packed_.runs(index)) {
      files_.read(run.document, run.offset, run.count, tokens);
      for (std::int64_t i = 0; i < run.count; ++i)
        if (tokens[i] < 0 || tokens[i] >= vocabulary_) refuse(run, i, tokens[i]);
      tokens += run.count;
    }
  }

 private:
  [[noreturn]] void refuse(const TokenRun& run, std::int64_t i, std::int64_t token) const {
    throw InputError({prefix_,
                      fmt::format("token {} at position {} of sequence {} is outside the model's vocabulary of {}",
                                  token, run.offset + i, run.document, vocabulary_),
                      fmt::format("0 to {}", vocabulary_ - 1),
                      "check that the data and the model use the same tokenizer"});
  }

  std::string prefix_;
  MegatronFiles files_;
  PackedSequences packed_;
  std::int64_t vocabulary_;
};

}  // namespace

std::unique_ptr<Dataset> open_megatron_dataset(const std::string& prefix, std::int64_t sequence_length,
                                               std::int64_t vocabulary_size, bool document_mask) {
  auto dataset = std::make_unique<MegatronDataset>(prefix, sequence_length, vocabulary_size);
  if (document_mask) return mask_documents(std::move(dataset));
  return dataset;
}

}  // namespace gantry

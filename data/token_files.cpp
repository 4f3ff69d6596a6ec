#include "gantry/data/token_files.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/core/mapped_file.h"
#include "gantry/data/corpus/packed_sequences.h"

namespace gantry {
namespace {

using Paths = std::vector<std::filesystem::path>;

std::vector<MappedFile> map_all(const Paths& paths) { return {paths.begin(), paths.end()}; }

// Tokens before each file, and at the end all of them.
std::vector<std::int64_t> boundaries_of(const std::vector<MappedFile>& files, int token_bytes) {
  std::vector<std::int64_t> boundaries = {0};
  for (const auto& file : files) {
    const auto bytes = static_cast<std::int64_t>(file.size());
    if (bytes % token_bytes != 0)
      throw InputError({file.path().string(), fmt::format("has {} bytes", bytes), "an even number, two for each token",
                        "data.format tokens is raw little-endian uint16"});
    boundaries.push_back(boundaries.back() + bytes / token_bytes);
  }
  return boundaries;
}

class TokenFiles final : public Dataset {
 public:
  TokenFiles(const Paths& paths, int token_bytes, std::int64_t sequence_length, std::int64_t vocabulary)
      : files_(map_all(paths)),
        token_bytes_(token_bytes),
        boundaries_(boundaries_of(files_, token_bytes)),
        packed_(boundaries_, sequence_length),
        vocabulary_(vocabulary) {}

  std::int64_t tokens() const { return boundaries_.back(); }
  std::int64_t size() const override { return packed_.size(); }
  std::int64_t sequence_length() const override { return packed_.sequence_length(); }

  void read(std::int64_t index, std::int64_t* tokens) const override {
    for (const auto& run : packed_.runs(index)) {
      const MappedFile& file = files_[static_cast<std::size_t>(run.document)];
      for (std::int64_t i = run.offset; i < run.offset + run.count; ++i) {
        *tokens = token_bytes_ == 1 ? file.data()[i] : file.data()[2 * i] | file.data()[2 * i + 1] << 8;
        if (*tokens >= vocabulary_) refuse(file, i, *tokens);
        ++tokens;
      }
    }
  }

 private:
  [[noreturn]] void refuse(const MappedFile& file, std::int64_t place, std::int64_t token) const {
    throw InputError(
        {file.path().string(),
         fmt::format("token {} at place {} is outside the model's vocabulary of {}", token, place, vocabulary_),
         fmt::format("0 to {}", vocabulary_ - 1), "check that the data and the model use the same tokenizer"});
  }

  std::vector<MappedFile> files_;
  int token_bytes_;
  std::vector<std::int64_t> boundaries_;
  PackedSequences packed_;  // reads boundaries_
  std::int64_t vocabulary_;
};

}  // namespace

std::unique_ptr<Dataset> open_token_files(const Paths& files, int token_bytes, std::int64_t sequence_length,
                                          std::int64_t vocabulary_size, const std::string& place) {
  auto dataset = std::make_unique<TokenFiles>(files, token_bytes, sequence_length, vocabulary_size);
  if (dataset->size() == 0)
    throw InputError({place, fmt::format("has {} tokens", dataset->tokens()),
                      fmt::format("at least sequence_length {} + 1 = {}", sequence_length, sequence_length + 1),
                      "give more text or a shorter data.sequence_length"});
  return dataset;
}

}  // namespace gantry

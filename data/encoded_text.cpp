#include "gantry/data/encoded_text.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/base/parallel_for.h"
#include "gantry/core/error.h"
#include "gantry/core/mapped_file.h"
#include "gantry/data/corpus/packed_sequences.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {
namespace {

using TextPaths = std::vector<std::filesystem::path>;

constexpr std::uint64_t kMostTextBytes = 1u << 30;

std::vector<std::int32_t> encode_file(const Tokenizer& tokenizer, const SurroundingTokens& ends,
                                      const std::filesystem::path& path) {
  const MappedFile file(path);
  TokenIds ids = tokenizer.encode(file.text());
  if (!ids.empty()) surround(ids, ends);
  return {ids.begin(), ids.end()};
}

// A row for each file. As many files as there are threads are in memory at once.
void encode_files(const TextPaths& paths, const TextEncoding& encoding, const OpenProgress& progress,
                  EncodedRowsWriter& rows) {
  const auto tokenizer = load_tokenizer(encoding.tokenizer);
  const SurroundingTokens ends = ends_of_training_text(*tokenizer, encoding.ends);
  const std::size_t threads = encoding_threads(encoding.encoding);
  for (std::size_t begin = 0; begin < paths.size(); begin += threads) {
    std::vector<std::vector<std::int32_t>> tokens(std::min(threads, paths.size() - begin));
    parallel_for(tokens.size(), threads, [&](std::size_t i) {
      tokens[i] = encode_file(*tokenizer, ends, paths[begin + i]);
      progress(tokens[i].size());
    });
    for (std::size_t i = 0; i < tokens.size(); ++i)
      rows.add(tokens[i], {}, {.file = static_cast<std::int64_t>(begin + i)});
  }
  rows.finish("");
}

std::vector<std::int64_t> boundaries_of_rows(const EncodedRows& rows) {
  std::vector<std::int64_t> boundaries = {0};
  for (std::size_t i = 0; i < rows.size(); ++i)
    boundaries.push_back(boundaries.back() + static_cast<std::int64_t>(rows.row(i).tokens.size()));
  return boundaries;
}

class EncodedText final : public PackedDataset {
 public:
  EncodedText(std::shared_ptr<const EncodedRows> rows, std::int64_t sequence_length)
      : rows_(std::move(rows)), boundaries_(boundaries_of_rows(*rows_)), packed_(boundaries_, sequence_length) {}

  std::int64_t tokens() const { return boundaries_.back(); }
  std::int64_t size() const override { return packed_.size(); }
  std::int64_t sequence_length() const override { return packed_.sequence_length(); }
  std::vector<TokenRun> documents(std::int64_t index) const override { return packed_.runs(index); }

  void read(std::int64_t index, std::int64_t* numbers) const override {
    for (const auto& run : packed_.runs(index)) {
      const EncodedRow file = rows_->row(static_cast<std::size_t>(run.document));
      numbers = std::copy_n(file.tokens.begin() + run.offset, run.count, numbers);
    }
  }

 private:
  std::shared_ptr<const EncodedRows> rows_;
  std::vector<std::int64_t> boundaries_;
  PackedSequences packed_;  // reads boundaries_
};

void require_vocabulary(const EncodedRows& rows, const TextPaths& paths, const std::string& tokenizer,
                        std::int64_t vocabulary_size) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (const auto token : rows.row(i).tokens)
      if (token >= vocabulary_size)
        throw InputError({paths[i].string(),
                          fmt::format("token {} of the tokenizer {} is outside the model's vocabulary of {}", token,
                                      tokenizer, vocabulary_size),
                          fmt::format("0 to {}", vocabulary_size - 1), "check that data.tokenizer is the model's own"});
}

void refuse_much_text(const TextPaths& files, const std::string& place) {
  std::uint64_t bytes = 0;
  for (const auto& path : files) {
    std::error_code failure;
    const auto size = std::filesystem::file_size(path, failure);
    if (!failure) bytes += size;  // reading it says what is wrong
  }
  if (bytes > kMostTextBytes)
    throw InputError({place, fmt::format("the text has {} bytes, which is too much to encode in memory", bytes),
                      fmt::format("at most {}", kMostTextBytes),
                      "create token files with gantry data build, and train on them with data.format megatron"});
}

}  // namespace

std::string choose_text_tokenizer(const std::string& stated, const std::string& model_path,
                                  std::int64_t vocabulary_size) {
  constexpr std::int64_t kByteValues = 256;
  if (!stated.empty()) return stated;
  if (!model_path.empty() && has_tokenizer(model_path)) return model_path;
  if (vocabulary_size <= kByteValues) return "bytes";
  throw ConfigError(
      {"data.tokenizer",
       model_path.empty()
           ? fmt::format("no tokenizer is set, but the model's vocabulary of {} is not the 256 bytes", vocabulary_size)
           : fmt::format("no tokenizer is set, {} has none, and the vocabulary of {} is not the 256 bytes", model_path,
                         vocabulary_size),
       "a directory or file with the vocabulary, or bytes",
       "set data.tokenizer: PATH, or data.tokenizer: bytes to train on bytes"});
}

std::unique_ptr<PackedDataset> open_encoded_text(const TextPaths& files, const TextEncoding& encoding,
                                                 std::int64_t sequence_length, std::int64_t vocabulary_size,
                                                 const std::string& place, const OpenProgress& progress) {
  refuse_much_text(files, place);
  const std::string rules = nlohmann::json({"text", encoding.tokenizer, encoding.ends.bos, encoding.ends.eos}).dump();
  const auto rows =
      encoded_rows(encoding.encoding.cache, {.files = files, .tokenizer = encoding.tokenizer, .rules = rules}, progress,
                   [&](EncodedRowsWriter& writer) { encode_files(files, encoding, progress, writer); });
  require_vocabulary(*rows, files, encoding.tokenizer, vocabulary_size);
  auto dataset = std::make_unique<EncodedText>(rows, sequence_length);
  require_one_sample(dataset->tokens(), sequence_length, place);
  return dataset;
}

}  // namespace gantry

#include "gantry/data/encoded_text.h"

#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <thread>

#include "gantry/core/error.h"
#include "gantry/core/mapped_file.h"
#include "gantry/data/corpus/packed_sequences.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {
namespace {

using TextPaths = std::vector<std::filesystem::path>;

constexpr std::uint64_t kMostTextBytes = 1u << 30;

// The tokens of each file.
using FileTokens = std::vector<std::vector<std::int32_t>>;

std::vector<std::int32_t> encode_file(const Tokenizer& tokenizer, const SurroundingTokens& ends,
                                      const std::filesystem::path& path) {
  const MappedFile file(path);
  TokenIds ids = tokenizer.encode({reinterpret_cast<const char*>(file.data()), file.size()});
  if (!ids.empty()) surround(ids, ends);
  return {ids.begin(), ids.end()};
}

FileTokens encode_all(const TextPaths& paths, const TextEncoding& encoding) {
  const auto tokenizer = load_tokenizer(encoding.tokenizer);
  const SurroundingTokens ends = ends_of_training_text(*tokenizer, encoding.ends);
  FileTokens tokens(paths.size());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < paths.size();) try {
        tokens[i] = encode_file(*tokenizer, ends, paths[i]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
  };
  std::vector<std::jthread> threads;
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  for (std::size_t i = 1; i < std::min(cores, paths.size()); ++i) threads.emplace_back(work);
  work();
  threads.clear();
  if (failure) std::rethrow_exception(failure);
  return tokens;
}

// Encoded once for all ranks of this process that hold it at the same time.
std::shared_ptr<const FileTokens> shared_tokens(const TextPaths& paths, const TextEncoding& encoding) {
  static std::mutex mutex;
  static std::map<std::pair<TextPaths, TextEncoding>, std::weak_ptr<const FileTokens>> all;
  const std::lock_guard lock(mutex);
  auto& known = all[{paths, encoding}];
  if (auto tokens = known.lock()) return tokens;
  auto tokens = std::make_shared<const FileTokens>(encode_all(paths, encoding));
  known = tokens;
  return tokens;
}

std::vector<std::int64_t> boundaries_of_tokens(const FileTokens& tokens) {
  std::vector<std::int64_t> boundaries = {0};
  for (const auto& file : tokens) boundaries.push_back(boundaries.back() + static_cast<std::int64_t>(file.size()));
  return boundaries;
}

class EncodedText final : public PackedDataset {
 public:
  EncodedText(std::shared_ptr<const FileTokens> tokens, std::int64_t sequence_length)
      : tokens_(std::move(tokens)),
        boundaries_(boundaries_of_tokens(*tokens_)),
        packed_(boundaries_, sequence_length) {}

  std::int64_t tokens() const { return boundaries_.back(); }
  std::int64_t size() const override { return packed_.size(); }
  std::int64_t sequence_length() const override { return packed_.sequence_length(); }
  std::vector<TokenRun> documents(std::int64_t index) const override { return packed_.runs(index); }

  void read(std::int64_t index, std::int64_t* numbers) const override {
    for (const auto& run : packed_.runs(index)) {
      const auto& file = (*tokens_)[static_cast<std::size_t>(run.document)];
      numbers = std::copy_n(file.begin() + run.offset, run.count, numbers);
    }
  }

 private:
  std::shared_ptr<const FileTokens> tokens_;
  std::vector<std::int64_t> boundaries_;
  PackedSequences packed_;  // reads boundaries_
};

void require_vocabulary(const FileTokens& tokens, const TextPaths& paths, const std::string& tokenizer,
                        std::int64_t vocabulary_size) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    for (const auto token : tokens[i])
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
                                                 const std::string& place) {
  refuse_much_text(files, place);
  const auto tokens = shared_tokens(files, encoding);
  require_vocabulary(*tokens, files, encoding.tokenizer, vocabulary_size);
  auto dataset = std::make_unique<EncodedText>(tokens, sequence_length);
  require_one_sample(dataset->tokens(), sequence_length, place);
  return dataset;
}

}  // namespace gantry

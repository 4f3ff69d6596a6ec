#include "gantry/data/dataset.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <glob.h>
#include <vector>

#include "gantry/core/error.h"
#include "gantry/data/corpus/megatron_dataset.h"
#include "gantry/data/squad_dataset.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

// Tokens in memory, of one or two bytes each.
template <class Token>
class TokenDataset final : public Dataset {
 public:
  TokenDataset(std::vector<Token> tokens, std::int64_t sequence_length)
      : tokens_(std::move(tokens)), length_(sequence_length) {}
  std::int64_t size() const override { return (static_cast<std::int64_t>(tokens_.size()) - 1) / length_; }
  std::int64_t sequence_length() const override { return length_; }
  void read(std::int64_t index, std::int64_t* tokens) const override {
    std::copy_n(tokens_.begin() + index * length_, length_ + 1, tokens);
  }

 private:
  std::vector<Token> tokens_;
  std::int64_t length_;
};

// What is read, and what the configuration calls it.
struct Place {
  std::string key, path;
  std::string text() const { return key + " " + path; }
};

std::vector<fs::path> files_below(const Place& place) {
  std::vector<fs::path> files;
  std::error_code failure;
  for (const auto& entry : fs::recursive_directory_iterator(place.path, failure))
    if (entry.is_regular_file()) files.push_back(entry.path());
  if (failure) throw InputError({place.text(), failure.message(), "a folder that can be read", ""});
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<fs::path> files_of(const Place& place) {
  const std::string& path = place.path;
  if (fs::is_directory(path)) return files_below(place);
  if (fs::exists(path)) return {path};
  std::vector<fs::path> files;
  glob_t found{};
  if (::glob(path.c_str(), 0, nullptr, &found) == 0)
    for (std::size_t i = 0; i < found.gl_pathc; ++i)
      if (fs::is_regular_file(found.gl_pathv[i])) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  if (files.empty())
    throw InputError({place.key, "'" + path + "' is no file or folder and matches no file",
                      "text or tokens to train on", "check the path; it is relative to the working directory"});
  return files;
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.good() && !file.eof())
    throw InputError({path.string(), std::strerror(errno), "a file that can be read", ""});
  return bytes;
}

std::string read_all(const Place& place) {
  std::string bytes;
  for (const auto& file : files_of(place)) bytes += read_file(file);
  return bytes;
}

void require_length(const Place& place, std::int64_t sequence_length, std::size_t tokens) {
  if (static_cast<std::int64_t>(tokens) >= sequence_length + 1) return;
  throw InputError({place.text(), fmt::format("has {} tokens", tokens),
                    fmt::format("at least sequence_length {} + 1 = {}", sequence_length, sequence_length + 1),
                    "give more text or a shorter data.sequence_length"});
}

std::unique_ptr<Dataset> open_text(const Place& place, std::int64_t sequence_length, std::int64_t vocabulary) {
  constexpr std::int64_t kBytes = 256;
  if (vocabulary < kBytes)
    throw InputError({"data.format text",
                      fmt::format("bytes are tokens 0 to 255, and the model's vocabulary is {}", vocabulary),
                      "a vocabulary of at least 256", "set model.config.vocab_size"});
  const std::string bytes = read_all(place);
  require_length(place, sequence_length, bytes.size());
  return std::make_unique<TokenDataset<std::uint8_t>>(std::vector<std::uint8_t>(bytes.begin(), bytes.end()),
                                                      sequence_length);
}

std::unique_ptr<Dataset> open_tokens(const Place& place, std::int64_t sequence_length, std::int64_t vocabulary) {
  const std::string bytes = read_all(place);
  if (bytes.size() % 2 != 0)
    throw InputError({place.text(), fmt::format("has {} bytes", bytes.size()), "an even number, two for each token",
                      "data.format tokens is raw little-endian uint16"});
  std::vector<std::uint16_t> tokens(bytes.size() / 2);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::uint16_t>(static_cast<unsigned char>(bytes[2 * i]) |
                                           static_cast<unsigned char>(bytes[2 * i + 1]) << 8);
    if (tokens[i] >= vocabulary)
      throw InputError(
          {place.text(),
           fmt::format("token {} at place {} is outside the model's vocabulary of {}", tokens[i], i, vocabulary),
           fmt::format("0 to {}", vocabulary - 1), "check that the data and the model use the same tokenizer"});
  }
  require_length(place, sequence_length, tokens.size());
  return std::make_unique<TokenDataset<std::uint16_t>>(std::move(tokens), sequence_length);
}

}  // namespace

std::unique_ptr<Dataset> open_dataset(const DataConfig& config, std::int64_t vocabulary_size, const std::string& key) {
  const Place place{key, config.path};
  if (config.format == "tokens") return open_tokens(place, config.sequence_length, vocabulary_size);
  if (config.format == "megatron") return open_megatron_dataset(config.path, config.sequence_length, vocabulary_size);
  if (config.format == "squad")
    return open_squad_dataset(config.path, config.tokenizer, config.sequence_length, vocabulary_size);
  return open_text(place, config.sequence_length, vocabulary_size);
}

SampleSource sample_source(const DataConfig& config, std::int64_t vocabulary_size, const std::string& key) {
  const auto open = [config, vocabulary_size, key] {
    std::vector<WeightedDataset> datasets;
    if (config.sources.empty()) datasets.push_back({open_dataset(config, vocabulary_size, key)});
    for (std::size_t i = 0; i < config.sources.size(); ++i) {
      DataConfig one = config;
      one.path = config.sources[i].path;
      datasets.push_back(
          {open_dataset(one, vocabulary_size, fmt::format("data.sources[{}].path", i)), config.sources[i].weight});
    }
    return datasets;
  };
  return {.entries = config.format == "squad" ? answer_span_entries(config.sequence_length)
                                              : next_token_entries(config.sequence_length),
          .sequence_length = config.sequence_length,
          .open = open};
}

}  // namespace gantry

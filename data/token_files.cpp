#include "gantry/data/token_files.h"

#include <fmt/format.h>
#include <fstream>
#include <optional>

#include "gantry/core/error.h"
#include "gantry/core/mapped_file.h"
#include "gantry/data/corpus/packed_sequences.h"

namespace gantry {
namespace {

using Paths = std::vector<std::filesystem::path>;

// One of the files. It is mapped or, if there are too many files to map, read in pieces.
class TokenFile {
 public:
  TokenFile(std::filesystem::path path, bool is_mapped) : path_(std::move(path)) {
    MappedFile file(path_);  // even if the mapping is not kept, this throws for a file that cannot be read
    size_ = static_cast<std::int64_t>(file.size());
    if (is_mapped) mapped_.emplace(std::move(file));
  }
  const std::filesystem::path& path() const { return path_; }
  std::int64_t size() const { return size_; }

  // Calls `use` with the bytes from `begin` on.
  template <class Use>
  void with_bytes(std::int64_t begin, std::int64_t bytes, Use use) const {
    if (mapped_) return use(mapped_->data() + begin);
    std::vector<unsigned char> piece(static_cast<std::size_t>(bytes));
    std::ifstream file(path_, std::ios::binary);
    file.seekg(begin);
    if (!file.read(reinterpret_cast<char*>(piece.data()), bytes))
      throw InputError({path_.string(), "the file has become shorter, or cannot be read any more",
                        fmt::format("{} bytes", size_), "do not change the data while a run reads them"});
    use(piece.data());
  }

 private:
  std::filesystem::path path_;
  std::int64_t size_ = 0;
  std::optional<MappedFile> mapped_;
};

std::vector<TokenFile> open_all(const Paths& paths, std::size_t most_mapped) {
  std::vector<TokenFile> files;
  files.reserve(paths.size());
  for (const auto& path : paths) files.emplace_back(path, paths.size() <= most_mapped);
  return files;
}

// Returns the number of tokens before each file, followed by the total.
std::vector<std::int64_t> boundaries_of(const std::vector<TokenFile>& files, int token_bytes) {
  std::vector<std::int64_t> boundaries = {0};
  for (const auto& file : files) {
    if (file.size() % token_bytes != 0)
      throw InputError({file.path().string(), fmt::format("the file has {} bytes", file.size()),
                        "an even number of bytes, two per token",
                        "write raw little-endian uint16 tokens, as data.format tokens requires"});
    boundaries.push_back(boundaries.back() + file.size() / token_bytes);
  }
  return boundaries;
}

class TokenFiles final : public PackedDataset {
 public:
  TokenFiles(const Paths& paths, int token_bytes, std::int64_t sequence_length, std::int64_t vocabulary,
             std::size_t most_mapped)
      : files_(open_all(paths, most_mapped)),
        token_bytes_(token_bytes),
        boundaries_(boundaries_of(files_, token_bytes)),
        packed_(boundaries_, sequence_length),
        vocabulary_(vocabulary) {}

  std::int64_t tokens() const { return boundaries_.back(); }
  std::int64_t size() const override { return packed_.size(); }
  std::int64_t sequence_length() const override { return packed_.sequence_length(); }
  std::vector<TokenRun> documents(std::int64_t index) const override { return packed_.runs(index); }

  void read(std::int64_t index, std::int64_t* tokens) const override {
    for (const auto& run : packed_.runs(index)) {
      const TokenFile& file = files_[static_cast<std::size_t>(run.document)];
      file.with_bytes(run.offset * token_bytes_, run.count * token_bytes_, [&](const unsigned char* bytes) {
        for (std::int64_t i = 0; i < run.count; ++i) {
          *tokens = token_bytes_ == 1 ? bytes[i] : bytes[2 * i] | bytes[2 * i + 1] << 8;
          if (*tokens >= vocabulary_) refuse(file, run.offset + i, *tokens);
          ++tokens;
        }
      });
    }
  }

 private:
  [[noreturn]] void refuse(const TokenFile& file, std::int64_t place, std::int64_t token) const {
    throw InputError(
        {file.path().string(),
         fmt::format("token {} at position {} is outside the model's vocabulary of {}", token, place, vocabulary_),
         fmt::format("0 to {}", vocabulary_ - 1), "check that the data and the model use the same tokenizer"});
  }

  std::vector<TokenFile> files_;
  int token_bytes_;
  std::vector<std::int64_t> boundaries_;
  PackedSequences packed_;  // reads boundaries_
  std::int64_t vocabulary_;
};

}  // namespace

std::unique_ptr<PackedDataset> open_token_files(const Paths& files, int token_bytes, std::int64_t sequence_length,
                                                std::int64_t vocabulary_size, const std::string& place,
                                                std::size_t most_mapped) {
  auto dataset = std::make_unique<TokenFiles>(files, token_bytes, sequence_length, vocabulary_size, most_mapped);
  require_one_sample(dataset->tokens(), sequence_length, place);
  return dataset;
}

}  // namespace gantry

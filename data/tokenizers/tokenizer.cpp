#include "gantry/data/tokenizers/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/data/tokenizers/directory_tokens.h"
#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/library_tokenizers.h"
#include "gantry/data/tokenizers/post_processor.h"
#include "gantry/data/tokenizers/tiktoken_file.h"
#include "gantry/data/tokenizers/tokenizer_files.h"
#include "gantry/data/tokenizers/tokenizer_pipeline.h"
#include "gantry/data/tokenizers/vocabulary.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::int64_t kBytes = 256;
  std::string kind() const override { return "byte"; }
  std::int64_t size() const override { return kBytes; }
  SpecialTokenIds special() const override { return {}; }
  void append(std::string_view text, TokenIds& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  using Tokenizer::decode;
  std::string decode(std::span<const std::int64_t> ids, bool) const override {
    std::string text;
    for (const std::int64_t id : ids) {
      if (id < 0 || id >= kBytes)
        throw InputError({fmt::format("token {}", id), "the token is not a byte", "0 to 255", ""});
      text += static_cast<char>(id);
    }
    return text;
  }
};

constexpr const char* kKnown =
    "tokenizer.json, vocab.json with merges.txt, a SentencePiece or tiktoken *.model, *.tiktoken, or WordPiece's "
    "vocab.txt";

std::unique_ptr<Tokenizer> load_tokenizer_json(const fs::path& path) {
  const DirectorySettings settings(path.parent_path());
  const auto file = add_directory_tokens(read_json_file(path, kMostTokenizerBytes), settings);
  return std::make_unique<TokenizerPipeline>(file, path, /*follows_flags=*/false);
}

std::unique_ptr<Tokenizer> load_converted(const ConvertedTokenizer& made) {
  return std::make_unique<TokenizerPipeline>(made.file, made.path, made.follows_flags, made.special);
}

std::unique_ptr<Tokenizer> load_file(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name == "vocab.json" || name == "merges.txt") return load_converted(convert_vocab_json(path.parent_path()));
  const bool is_model = name.ends_with(".model") || name.ends_with(".tiktoken");
  if (is_model && is_tiktoken_file(path)) return load_converted(convert_tiktoken(path));
  if (is_model) return load_sentence_piece(path);
  if (name.ends_with(".txt")) return load_converted(convert_vocab_txt(path));
  if (!name.ends_with(".json")) throw InputError({path.string(), "the file is not a tokenizer file", kKnown, ""});
  return load_tokenizer_json(path);
}

// Returns the first *.model of a directory, with tokenizer.model before others, or else the first *.tiktoken;
// an empty path if there is none.
fs::path model_in(const fs::path& folder) {
  if (path_exists(folder / "tokenizer.model")) return folder / "tokenizer.model";
  for (const char* ending : {".model", ".tiktoken"})
    for (const auto& entry : entries_of(folder))
      if (entry.extension() == ending) return entry;
  return {};
}

std::unique_ptr<Tokenizer> load_folder(const fs::path& folder) {
  if (const fs::path json = folder / "tokenizer.json"; path_exists(json)) return load_tokenizer_json(json);
  if (path_exists(folder / "vocab.json") && path_exists(folder / "merges.txt")) return load_file(folder / "vocab.json");
  if (const fs::path model = model_in(folder); !model.empty()) {
    if (is_tiktoken_file(model)) return load_file(model);
    const auto alone = load_sentence_piece(model);  // reports a damaged file
    return load_converted(convert_sentence_piece(model, alone->special()));
  }
  if (path_exists(folder / "vocab.txt")) return load_file(folder / "vocab.txt");
  throw InputError({folder.string(), "the directory has no tokenizer", kKnown, ""});
}

}  // namespace

const SurroundingTokens& Tokenizer::surrounding() const {
  static const SurroundingTokens kNone;
  return kNone;
}

TypedTokens Tokenizer::join(const TokenIds& first, const TokenIds& second) const {
  return join_texts({{.text = 1}, {.text = 2, .type = 1}}, first, second);
}

std::size_t common_ids(std::span<const std::int64_t> one, std::span<const std::int64_t> other) {
  const auto least = static_cast<std::ptrdiff_t>(std::min(one.size(), other.size()));
  return static_cast<std::size_t>(std::mismatch(one.begin(), one.begin() + least, other.begin()).first - one.begin());
}

std::vector<std::size_t> Tokenizer::append_and_count(std::string_view text, std::span<const std::size_t> places,
                                                     TokenIds& ids) const {
  const std::size_t first = ids.size();
  append(text, ids);
  std::vector<std::size_t> counts;
  for (const std::size_t place : places)
    counts.push_back(first + common_ids(std::span(ids).subspan(first), encode(text.substr(0, place))));
  return counts;
}

TokenIds Tokenizer::encode_surrounded(std::string_view text) const {
  TokenIds ids = surrounding().before;
  append(text, ids);
  ids.insert(ids.end(), surrounding().after.begin(), surrounding().after.end());
  return ids;
}

bool is_byte_tokenizer(const std::string& path) { return path == "bytes" || path == "byte"; }

bool has_tokenizer(const std::string& folder) {
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    const std::string name = entry.path().filename().string();
    if (name == "tokenizer.json" || name == "vocab.json" || name == "vocab.txt" || name.ends_with(".model") ||
        name.ends_with(".tiktoken"))
      return true;
  }
  return false;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  if (is_byte_tokenizer(path)) return std::make_unique<ByteTokenizer>();
  if (!path_exists(path))
    throw InputError({path, "the path does not exist", fmt::format("'bytes', or a file or directory: {}", kKnown), ""});
  return is_folder(path) ? load_folder(path) : load_file(path);
}

}  // namespace gantry

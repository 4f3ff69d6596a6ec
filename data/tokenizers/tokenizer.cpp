#include "gantry/data/tokenizers/tokenizer.h"

#include <filesystem>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/core/paths.h"
#include "gantry/data/tokenizers/byte_pair_tokenizer.h"
#include "gantry/data/tokenizers/library_tokenizers.h"

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
  std::string decode(std::span<const std::int64_t> ids) const override {
    std::string text;
    for (const std::int64_t id : ids) {
      if (id < 0 || id >= kBytes) throw InputError({fmt::format("token {}", id), "is no byte", "0 to 255", ""});
      text += static_cast<char>(id);
    }
    return text;
  }
};

constexpr const char* kKnown =
    "tokenizer.json (byte-level BPE), vocab.json with merges.txt, a SentencePiece *.model, or WordPiece's vocab.txt";

// nullptr for a tokenizer.json of another kind.
std::unique_ptr<Tokenizer> load_tokenizer_json(const fs::path& path) {
  const auto model = read_tokenizer_json(path);
  return model ? std::make_unique<BytePairTokenizer>(*model) : nullptr;
}

std::unique_ptr<Tokenizer> load_file(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name == "vocab.json" || name == "merges.txt")
    return std::make_unique<BytePairTokenizer>(read_vocab_json(path.parent_path() / "vocab.json"));
  if (name.ends_with(".model")) return load_sentence_piece(path);
  if (name.ends_with(".txt")) return load_word_piece(path);
  if (!name.ends_with(".json")) throw InputError({path.string(), "is no file of a tokenizer", kKnown, ""});
  auto tokenizer = load_tokenizer_json(path);
  if (!tokenizer)
    throw InputError({path.string(), "is no byte-level BPE", "the kind of GPT-2 and Llama 3",
                      "give the model's SentencePiece *.model or vocab.txt, if it has one"});
  return tokenizer;
}

// The one *.model of a folder, tokenizer.model before others; an empty path for none.
fs::path model_in(const fs::path& folder) {
  if (path_exists(folder / "tokenizer.model")) return folder / "tokenizer.model";
  fs::path found;
  for (const auto& entry : entries_of(folder))
    if (entry.extension() == ".model" && found.empty()) found = entry;
  return found;
}

std::unique_ptr<Tokenizer> load_folder(const fs::path& folder) {
  const fs::path json = folder / "tokenizer.json";
  const bool has_json = path_exists(json);
  if (has_json)
    if (auto tokenizer = load_tokenizer_json(json)) return tokenizer;
  if (path_exists(folder / "vocab.json") && path_exists(folder / "merges.txt")) return load_file(folder / "vocab.json");
  if (const fs::path model = model_in(folder); !model.empty()) return load_file(model);
  if (path_exists(folder / "vocab.txt")) return load_file(folder / "vocab.txt");
  if (has_json) return load_file(json);  // says what is wrong with it
  throw InputError({folder.string(), "has no tokenizer", kKnown, ""});
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  if (path == "byte") return std::make_unique<ByteTokenizer>();
  if (!path_exists(path))
    throw InputError({path, "does not exist", fmt::format("'byte', or a file or folder: {}", kKnown), ""});
  return is_folder(path) ? load_folder(path) : load_file(path);
}

}  // namespace gantry

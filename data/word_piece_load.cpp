// Reads a vocab.txt and the files next to it.
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/data/tokenizers/directory_tokens.h"
#include "gantry/data/tokenizers/tokenizer_files.h"
#include "gantry/data/tokenizers/vocabulary.h"
#include "gantry/data/word_piece.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

// Throws InputError for a setting that WordPiece lacks.
void require_plain(const AddedToken& token, const fs::path& file) {
  const std::pair<const char*, bool> settings[] = {{"lstrip", token.strip_left},
                                                   {"rstrip", token.strip_right},
                                                   {"single_word", token.single_word},
                                                   {"normalized", token.is_normalized}};
  for (const auto& [name, is_set] : settings)
    if (is_set)
      throw InputError({file.string(), fmt::format("the added token '{}' has {}: true", token.content, name), "false",
                        "list the token in extra_special_tokens of tokenizer_config.json, without this setting"});
}

}  // namespace

WordPiece WordPiece::load(const std::string& path) {
  const fs::path file = is_folder(path) ? fs::path(path) / "vocab.txt" : fs::path(path);
  const ConvertedTokenizer converted = convert_vocab_txt(file);
  const JsonView view(converted.file, file.string());
  const DirectorySettings settings(file.parent_path());
  const JsonView normalizer = view.at("normalizer");
  WordPieceOptions options{.lower_case = normalizer.at("lowercase").flag(),
                           .strip_accents = normalizer.at("strip_accents").flag(),
                           .tokenize_chinese_chars = normalizer.at("handle_chinese_chars").flag(),
                           .unknown = settings.token("unk_token", "[UNK]"),
                           .classifier = settings.token("cls_token", "[CLS]"),
                           .separator = settings.token("sep_token", "[SEP]"),
                           .padding = settings.token("pad_token", "[PAD]"),
                           .mask = settings.token("mask_token", "[MASK]")};
  Vocabulary vocabulary = read_vocabulary(view.at("model").at("vocab"), view.at("added_tokens").list().size());
  for (const AddedToken& token : read_added_tokens(view, file.parent_path(), vocabulary)) {
    require_plain(token, file);
    const auto id = static_cast<std::size_t>(token.id);
    vocabulary.tokens.resize(std::max(vocabulary.tokens.size(), id + 1));
    vocabulary.tokens[id] = token.content;
    options.more_special.push_back(token.content);
  }
  try {
    return WordPiece(vocabulary.tokens, options);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", file.string(), error.what()));
  }
}

}  // namespace gantry

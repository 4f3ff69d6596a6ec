// Common functions of the readers of tokenizer files: they read the vocabulary, its merges, and the added
// tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gantry/data/tokenizers/added_tokens.h"
#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/merge_table.h"

namespace gantry {

inline constexpr std::uintmax_t kMostTokenizerBytes = 512u << 20;  // published files have at most about 35 MB

// Maps tokens to ids, and ids to tokens.
struct Vocabulary {
  TokenTable ids;
  std::vector<std::string> tokens;  // empty for an unused id, and for a token without characters

  std::optional<std::int64_t> id_of(std::string_view token) const;
};

// Returns the upper limit of ids. It allows gaps, but no gaps with which a hostile file could fill the
// memory.
std::int64_t token_id_limit(std::size_t tokens);

// Reads {"token": id, ...}. `more`: the number of tokens that will be added. A token may be empty. Throws
// InputError if two tokens have the same id.
Vocabulary read_vocabulary(const JsonView& view, std::size_t more);

// Reads ["a b", ...] or [["a", "b"], ...]. The merged token omits the first `prefix` bytes of the second
// token. Throws InputError if a token of a pair or the merged token is not in the vocabulary.
std::vector<Merge> read_merges(const JsonView& view, const Vocabulary& vocabulary, std::size_t prefix);

// Reads the added tokens of tokenizer.json, and then those of the tokenizer_config.json next to it, whose
// settings take precedence.
std::vector<AddedToken> read_added_tokens(const JsonView& file, const std::filesystem::path& folder,
                                          const Vocabulary& vocabulary);
// Reads only added_tokens_decoder of tokenizer_config.json: {"50256": {"content": "<|endoftext|>", ...}, ...}
void read_added_decoder(const JsonView& config, const Vocabulary& vocabulary, std::vector<AddedToken>& added);
// Adds a token, or replaces the settings of a token that was added before. Throws InputError if the
// vocabulary has another token with this id, or another id for this token.
void put_added(std::vector<AddedToken>& added, AddedToken token, const Vocabulary& vocabulary,
               const std::string& place);

std::optional<std::int64_t> find_token(const std::vector<AddedToken>& added, const Vocabulary& vocabulary,
                                       const std::string& token);

}  // namespace gantry

// What the readers of tokenizers' files have in common: the vocabulary, its merges, and the added tokens.
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

inline constexpr std::uintmax_t kMostTokenizerBytes = 512u << 20;  // the largest published ones have about 35 MB

// Both ways between tokens and ids.
struct Vocabulary {
  TokenTable ids;
  std::vector<std::string> tokens;  // empty for an unused id, and for a token without characters

  std::optional<std::int64_t> id_of(std::string_view token) const;
};

// Ids are below this: there may be gaps, but not so wide that a hostile file could fill the memory.
std::int64_t token_id_limit(std::size_t tokens);

// {"token": id, ...}; `more` tokens will be added. A token may be empty. Throws InputError for an id of two tokens.
Vocabulary read_vocabulary(const JsonView& view, std::size_t more);

// ["a b", ...] or [["a", "b"], ...]. The second token loses `prefix` bytes in the merged one. Throws InputError if a
// token of a pair or the merged one is not in the vocabulary.
std::vector<Merge> read_merges(const JsonView& view, const Vocabulary& vocabulary, std::size_t prefix);

// tokenizer.json's added_tokens, then tokenizer_config.json's beside it, whose settings of a token count.
std::vector<AddedToken> read_added_tokens(const JsonView& file, const std::filesystem::path& folder,
                                          const Vocabulary& vocabulary);
// tokenizer_config.json's added_tokens_decoder alone: {"50256": {"content": "<|endoftext|>", ...}, ...}
void read_added_decoder(const JsonView& config, const Vocabulary& vocabulary, std::vector<AddedToken>& added);
// A token that is known already is given these settings. InputError where the vocabulary has another token of that id,
// or another id for it.
void put_added(std::vector<AddedToken>& added, AddedToken token, const Vocabulary& vocabulary,
               const std::string& place);

std::optional<std::int64_t> find_token(const std::vector<AddedToken>& added, const Vocabulary& vocabulary,
                                       const std::string& token);

}  // namespace gantry

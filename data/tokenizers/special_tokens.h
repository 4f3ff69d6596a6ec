// The special tokens in the files of a tokenizer's directory: tokenizer_config.json, then
// special_tokens_map.json.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

// Returns the ids of bos_token, eos_token, pad_token, unk_token and mask_token; `id_of` maps their names to
// ids. Files may be missing. Throws InputError for a name that is not a token.
SpecialTokenIds read_special_tokens(const std::filesystem::path& folder,
                                    const std::function<std::optional<std::int64_t>(const std::string&)>& id_of);

// Returns the text of a token in these files: a string, or an object with "content". Throws InputError for
// anything else.
const std::string& token_content(const JsonView& value);

}  // namespace gantry

// The special tokens that a tokenizer's folder names: tokenizer_config.json, then special_tokens_map.json.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

// bos_token, eos_token, pad_token, unk_token and mask_token as ids by `id_of`. Missing files name none. InputError for
// a name that is not a token.
SpecialTokenIds read_special_tokens(const std::filesystem::path& folder,
                                    const std::function<std::optional<std::int64_t>(const std::string&)>& id_of);

// A token as these files have it: a string, or an object with "content". InputError for anything else.
const std::string& token_content(const JsonView& value);

}  // namespace gantry

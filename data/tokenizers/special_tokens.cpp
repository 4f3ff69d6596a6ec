#include "gantry/data/tokenizers/special_tokens.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"

namespace gantry {
namespace {

constexpr std::uintmax_t kMostListBytes = 64u << 20;

}  // namespace

const std::string& token_content(const JsonView& value) {
  return value.json().is_object() ? value.at("content").text() : value.text();
}

SpecialTokenIds read_special_tokens(const std::filesystem::path& folder,
                                    const std::function<std::optional<std::int64_t>(const std::string&)>& id_of) {
  SpecialTokenIds special;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const auto path = folder / name;
    if (!path_exists(path)) continue;
    const auto json = read_json_file(path, kMostListBytes);
    const JsonView file(json, path.string());
    for (const auto& [key, id] : {std::pair("bos_token", &special.begin), std::pair("eos_token", &special.end),
                                  std::pair("pad_token", &special.padding), std::pair("unk_token", &special.unknown),
                                  std::pair("mask_token", &special.mask)}) {
      const auto value = file.find(key);
      if (!value || *id) continue;
      *id = id_of(token_content(*value));
      if (!*id)
        throw InputError({value->place(), fmt::format("'{}' is not in the vocabulary", token_content(*value)),
                          "a token of the vocabulary", ""});
    }
  }
  return special;
}

}  // namespace gantry

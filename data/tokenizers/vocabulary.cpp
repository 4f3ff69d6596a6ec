#include "gantry/data/tokenizers/vocabulary.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <tuple>

#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t kMostIds = 1 << 24;

Merge make_merge(const Vocabulary& vocabulary, std::string_view left, std::string_view right, std::size_t prefix,
                 const std::string& place) {
  const std::string result = fmt::format("{}{}", left, right.substr(std::min(prefix, right.size())));
  const auto id = [&](std::string_view token) {
    const auto found = vocabulary.id_of(token);
    if (!found)
      throw InputError({place, fmt::format("'{}' is not in the vocabulary", token),
                        "two tokens whose concatenation is also a token", ""});
    return static_cast<std::int32_t>(*found);
  };
  return {id(left), id(right), id(result)};
}

std::pair<std::string_view, std::string_view> split_merge(std::string_view line, const std::string& place) {
  const std::size_t space = line.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string_view::npos)
    throw InputError({place, fmt::format("the line is '{}'", line), "two tokens with a space between them", ""});
  return {line.substr(0, space), line.substr(space + 1)};
}

AddedToken read_added(const JsonView& view, std::int64_t id) {
  AddedToken token{.id = id, .content = view.at("content").text()};
  if (token.content.empty()) view.at("content").refuse("a token");
  token.is_special = view.flag_or("special", false);
  token.single_word = view.flag_or("single_word", false);
  token.strip_left = view.flag_or("lstrip", false);
  token.strip_right = view.flag_or("rstrip", false);
  token.is_normalized = view.flag_or("normalized", !token.is_special);
  return token;
}

// An added token that the vocabulary has too must have the same id there.
void check_added(const AddedToken& token, const Vocabulary& vocabulary, const std::string& place) {
  const auto index = static_cast<std::size_t>(token.id);
  const auto id = vocabulary.id_of(token.content);
  if (id && *id != token.id)
    throw InputError(
        {place, fmt::format("'{}' is {} here and {} in the vocabulary", token.content, token.id, *id), "one id", ""});
  if (!id && index < vocabulary.tokens.size() && !vocabulary.tokens[index].empty())
    throw InputError(
        {place,
         fmt::format("{} is '{}' here and '{}' in the vocabulary", token.id, token.content, vocabulary.tokens[index]),
         "one token", ""});
}

}  // namespace

std::optional<std::int64_t> Vocabulary::id_of(std::string_view token) const {
  const auto found = ids.find(token);
  return found == ids.end() ? std::nullopt : std::optional<std::int64_t>(found->second);
}

std::int64_t token_id_limit(std::size_t tokens) {
  return std::min(2 * static_cast<std::int64_t>(tokens) + 1024, kMostIds);
}

Vocabulary read_vocabulary(const JsonView& view, std::size_t more) {
  Vocabulary vocabulary;
  const json& object = view.object();
  const std::int64_t limit = token_id_limit(object.size() + more);
  vocabulary.ids.reserve(object.size());
  for (const auto& [token, id] : object.items()) {
    if (!is_count(id, limit))
      JsonView(id, fmt::format("{}: '{}'", view.place(), token))
          .refuse(fmt::format("an id from 0 to {} of a token", limit - 1));
    const auto index = id.get<std::size_t>();
    if (index >= vocabulary.tokens.size()) vocabulary.tokens.resize(index + 1);
    if (!vocabulary.tokens[index].empty())
      throw InputError({view.place(),
                        fmt::format("the id {} belongs to '{}' and to '{}'", index, vocabulary.tokens[index], token),
                        "a unique id for each token", ""});
    vocabulary.tokens[index] = token;
    vocabulary.ids.emplace(token, static_cast<std::int32_t>(index));
  }
  return vocabulary;
}

std::vector<Merge> read_merges(const JsonView& view, const Vocabulary& vocabulary, std::size_t prefix) {
  std::vector<Merge> merges;
  const json& list = view.list();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonView pair = view.element(i);
    std::string_view left, right;
    if (list[i].is_string()) {
      std::tie(left, right) = split_merge(list[i].get_ref<const std::string&>(), pair.place());
    } else {
      if (pair.list().size() != 2) pair.refuse("two tokens");
      left = pair.element(0).text(), right = pair.element(1).text();
    }
    merges.push_back(make_merge(vocabulary, left, right, prefix, pair.place()));
  }
  return merges;
}

std::vector<AddedToken> read_added_tokens(const JsonView& file, const fs::path& folder, const Vocabulary& vocabulary) {
  std::vector<AddedToken> added;
  if (const auto list = file.find("added_tokens")) {
    const std::int64_t limit = token_id_limit(vocabulary.ids.size() + list->list().size());
    for (std::size_t i = 0; i < list->list().size(); ++i) {
      const JsonView token = list->element(i);
      put_added(added, read_added(token, token.at("id").count(limit)), vocabulary, token.place());
    }
  }
  if (const fs::path path = folder / "tokenizer_config.json"; path_exists(path)) {
    const json config = read_json_file(path, kMostTokenizerBytes);
    read_added_decoder(JsonView(config, path.string()), vocabulary, added);
  }
  return added;
}

void read_added_decoder(const JsonView& config, const Vocabulary& vocabulary, std::vector<AddedToken>& added) {
  const auto decoder = config.find("added_tokens_decoder");
  if (!decoder) return;
  const std::int64_t limit = token_id_limit(vocabulary.ids.size() + decoder->object().size());
  for (const auto& [key, value] : decoder->object().items()) {
    const JsonView token(value, fmt::format("{}.{}", decoder->place(), key));
    const bool is_number = !key.empty() && key.size() < 9 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number || std::stoll(key) >= limit)
      throw InputError({token.place(), "the key is not an id", fmt::format("0 to {}", limit - 1), ""});
    put_added(added, read_added(token, std::stoll(key)), vocabulary, token.place());
  }
}

void put_added(std::vector<AddedToken>& added, AddedToken token, const Vocabulary& vocabulary,
               const std::string& place) {
  check_added(token, vocabulary, place);
  const auto known = std::ranges::find(added, token.content, &AddedToken::content);
  const auto same_id = std::ranges::find(added, token.id, &AddedToken::id);
  if (same_id != known)
    throw InputError({place, fmt::format("{} is '{}' here, and another token elsewhere", token.id, token.content),
                      "one token for an id, and one id for a token", ""});
  if (known == added.end())
    added.push_back(std::move(token));
  else
    *known = std::move(token);
}

std::optional<std::int64_t> find_token(const std::vector<AddedToken>& added, const Vocabulary& vocabulary,
                                       const std::string& token) {
  const auto found = std::ranges::find(added, token, &AddedToken::content);
  return found != added.end() ? found->id : vocabulary.id_of(token);
}

}  // namespace gantry

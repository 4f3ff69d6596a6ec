#include "gantry/data/tokenizers/post_processor.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gantry {
namespace {

constexpr std::int64_t kMostId = 1 << 24;

// ["[SEP]", 102]
std::int64_t read_pair(const JsonView& view) {
  if (view.list().size() != 2) view.refuse("a token and its id");
  return view.element(1).count(kMostId);
}

void append_special(const JsonView& name, const JsonView& special_tokens, TokenIds& tokens) {
  const auto token = special_tokens.find(name.text());
  if (!token) name.refuse("a token of special_tokens");
  const JsonView ids = token->at("ids");
  for (std::size_t i = 0; i < ids.list().size(); ++i) tokens.push_back(ids.element(i).count(kMostId));
}

SurroundingTokens read_single(const JsonView& view) {
  SurroundingTokens tokens;
  const JsonView single = view.at("single");
  int texts = 0;
  for (std::size_t i = 0; i < single.list().size(); ++i) {
    const JsonView part = single.element(i);
    if (const auto special = part.find("SpecialToken"))
      append_special(special->at("id"), view.at("special_tokens"), texts == 0 ? tokens.before : tokens.after);
    else if (part.at("Sequence").at("id").text() == "A")
      ++texts;
  }
  if (texts != 1) single.refuse("a template with the text A once");
  return tokens;
}

std::int64_t type_of(const JsonView& part) {
  const auto type = part.find("type_id");
  return type ? type->count(kMostId) : 0;
}

std::vector<PairPart> read_pair_template(const JsonView& view) {
  const auto pair = view.find("pair");
  if (!pair) return PostProcessor().pair;
  std::vector<PairPart> parts;
  int first = 0, second = 0;
  for (std::size_t i = 0; i < pair->list().size(); ++i) {
    const JsonView part = pair->element(i);
    if (const auto special = part.find("SpecialToken")) {
      parts.push_back({.type = type_of(*special)});
      append_special(special->at("id"), view.at("special_tokens"), parts.back().tokens);
      continue;
    }
    const JsonView text = part.at("Sequence");
    const bool is_first = text.at("id").text() == "A";
    ++(is_first ? first : second);
    parts.push_back({.text = is_first ? 1 : 2, .type = type_of(text)});
  }
  if (first != 1 || second != 1) return {};
  return parts;
}

// [CLS] A [SEP] B [SEP], and <s> A </s></s> B </s>.
PostProcessor read_class_and_separator(const JsonView& view, bool is_bert) {
  const TokenIds begin = {read_pair(view.at("cls"))}, end = {read_pair(view.at("sep"))};
  const std::int64_t type = is_bert ? 1 : 0;
  PostProcessor made{.single = {begin, end}, .pair = {{.tokens = begin}, {.text = 1}, {.tokens = end}}};
  if (!is_bert) made.pair.push_back({.tokens = end});
  made.pair.push_back({.text = 2, .type = type});
  made.pair.push_back({.type = type, .tokens = end});
  return made;
}

}  // namespace

PostProcessor read_post_processor(const JsonView& view) {
  const JsonView type_view = view.at("type");
  const std::string& type = type_view.text();
  if (type == "ByteLevel") return {};  // changes offsets only
  if (type == "TemplateProcessing") return {read_single(view), read_pair_template(view)};
  if (type == "BertProcessing" || type == "RobertaProcessing")
    return read_class_and_separator(view, type == "BertProcessing");
  if (type != "Sequence")
    type_view.refuse("BertProcessing, RobertaProcessing, TemplateProcessing, ByteLevel or Sequence",
                     "use a tokenizer with one of these");
  PostProcessor made;
  const JsonView list = view.at("processors");
  for (std::size_t i = 0; i < list.list().size(); ++i) {
    PostProcessor outer = read_post_processor(list.element(i));
    made.single.before.insert(made.single.before.begin(), outer.single.before.begin(), outer.single.before.end());
    made.single.after.insert(made.single.after.end(), outer.single.after.begin(), outer.single.after.end());
    if (list.element(i).at("type").text() != "ByteLevel") made.pair = std::move(outer.pair);
  }
  return made;
}

TypedTokens join_texts(const std::vector<PairPart>& parts, const TokenIds& first, const TokenIds& second) {
  TypedTokens joined;
  for (const PairPart& part : parts) {
    const TokenIds& tokens = part.text == 0 ? part.tokens : part.text == 1 ? first : second;
    joined.ids.insert(joined.ids.end(), tokens.begin(), tokens.end());
    joined.types.insert(joined.types.end(), tokens.size(), part.type);
  }
  return joined;
}

}  // namespace gantry

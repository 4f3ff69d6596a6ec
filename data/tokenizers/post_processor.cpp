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

SurroundingTokens read_template(const JsonView& view) {
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

}  // namespace

SurroundingTokens read_post_processor(const JsonView& view) {
  const JsonView type_view = view.at("type");
  const std::string& type = type_view.text();
  if (type == "ByteLevel") return {};  // changes offsets only
  if (type == "TemplateProcessing") return read_template(view);
  if (type == "BertProcessing" || type == "RobertaProcessing")
    return {{read_pair(view.at("cls"))}, {read_pair(view.at("sep"))}};
  if (type != "Sequence")
    type_view.refuse("BertProcessing, RobertaProcessing, TemplateProcessing, ByteLevel or Sequence",
                     "use a tokenizer with one of these");
  SurroundingTokens tokens;
  const JsonView list = view.at("processors");
  for (std::size_t i = 0; i < list.list().size(); ++i) {
    const SurroundingTokens outer = read_post_processor(list.element(i));
    tokens.before.insert(tokens.before.begin(), outer.before.begin(), outer.before.end());
    tokens.after.insert(tokens.after.end(), outer.after.begin(), outer.after.end());
  }
  return tokens;
}

}  // namespace gantry

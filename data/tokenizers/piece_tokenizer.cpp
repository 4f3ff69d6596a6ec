#include "gantry/data/tokenizers/piece_tokenizer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/utf8.h"
#include "gantry/data/tokenizers/special_tokens.h"

namespace gantry {

PieceTokenizer::PieceTokenizer(std::string_view text, const std::filesystem::path& path,
                               const SpecialTokenIds& special) {
  const nlohmann::json parsed = parse_json_text(text, path);
  const JsonView file(parsed, path.string());
  const auto listed = file.find("added_tokens");
  LoadedPieceModel loaded = read_piece_model(file.at("model"), listed ? listed->list().size() : 0);
  model_ = std::move(loaded.model);
  const auto added = read_added_tokens(file, path.parent_path(), loaded.vocabulary);
  const auto normalizer_view = file.find("normalizer");
  const auto normalizer = normalizer_view ? read_normalizer(*normalizer_view) : nullptr;
  added_ = AddedTokens(added, normalizer);
  if (const auto pre_tokenizer = file.find("pre_tokenizer")) steps_ = read_piece_steps(*pre_tokenizer);
  if (const auto decoder = file.find("decoder")) decoder_ = read_decoder(*decoder);
  special_ = read_special_tokens(path.parent_path(),
                                 [&](const auto& token) { return find_token(added, loaded.vocabulary, token); });
  for (const auto member :
       {&SpecialTokenIds::begin, &SpecialTokenIds::end, &SpecialTokenIds::padding, &SpecialTokenIds::unknown})
    if (!(special_.*member)) special_.*member = special.*member;
  tokens_ = std::move(loaded.vocabulary.tokens);
  for (const auto& token : added) {
    const auto id = static_cast<std::size_t>(token.id);
    if (id >= tokens_.size()) tokens_.resize(id + 1);
    tokens_[id] = token.is_normalized && normalizer ? normalizer->apply(token.content) : token.content;
  }
}

void PieceTokenizer::append(std::string_view text, TokenIds& ids) const {
  const bool is_valid = valid_utf8_prefix(text) == text.size();
  const std::string replaced = is_valid ? "" : valid_utf8(text);
  added_.split(is_valid ? text : replaced, [&](const TextPart& part) {
    if (part.id == TextPart::kText)
      append_piece(part.text, part.at_start, 0, ids);
    else
      ids.push_back(part.id);
  });
}

void PieceTokenizer::append_piece(std::string_view piece, bool at_start, std::size_t step, TokenIds& ids) const {
  if (step == steps_.size()) return model_->append(piece, ids);
  steps_[step]->cut(piece, at_start, [&](std::string_view part, bool part_at_start) {
    append_piece(part, part_at_start, step + 1, ids);
  });
}

std::string PieceTokenizer::decode(std::span<const std::int64_t> ids) const {
  std::vector<std::string> tokens;
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= size())
      throw InputError(
          {fmt::format("token {}", id), "the token is not in the vocabulary", fmt::format("0 to {}", size() - 1), ""});
    tokens.push_back(tokens_[static_cast<std::size_t>(id)]);
  }
  std::string text;
  if (decoder_) tokens = decoder_->apply(std::move(tokens));
  for (std::size_t i = 0; i < tokens.size(); ++i) text += (decoder_ || i == 0 ? "" : " ") + tokens[i];
  return text;
}

}  // namespace gantry

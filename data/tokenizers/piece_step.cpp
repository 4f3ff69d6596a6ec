#include "gantry/data/tokenizers/piece_step.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unicode/uchar.h>

#include "gantry/core/error.h"
#include "gantry/core/utf8.h"
#include "gantry/data/bert_text.h"
#include "gantry/data/tokenizers/text_split.h"

namespace gantry {
namespace {

// Blanks become a visible character, which also stands before the first word; pieces begin with it.
class Metaspace final : public PieceStep {
 public:
  enum class Prefix { kAlways, kFirst, kNever };
  Metaspace(std::string blank, Prefix prefix, bool splits)
      : blank_(std::move(blank)), prefix_(prefix), splits_(splits) {}

  void cut(std::string_view text, bool at_start, const TakePiece& take) const override {
    std::string marked;
    for (const char c : text) c == ' ' ? marked += blank_ : marked += c;
    const bool wants_prefix = prefix_ == Prefix::kAlways || (prefix_ == Prefix::kFirst && at_start);
    if (wants_prefix && !marked.starts_with(blank_)) marked.insert(0, blank_);
    const std::string_view whole = marked;
    for (std::size_t begin = 0; begin < whole.size();) {
      const std::size_t end = splits_ ? std::min(whole.find(blank_, begin + 1), whole.size()) : whole.size();
      take(whole.substr(begin, end - begin), at_start && begin == 0);
      begin = end;
    }
  }

 private:
  std::string blank_;
  Prefix prefix_;
  bool splits_;
};

// By white space, which is dropped.
class WhitespaceSplit final : public PieceStep {
 public:
  void cut(std::string_view text, bool at_start, const TakePiece& take) const override {
    std::size_t begin = 0;
    for (std::size_t at = 0; at < text.size();) {
      const auto [length, character] = first_utf8(text.substr(at));
      const std::size_t next = at + length;
      if (character && u_isUWhiteSpace(static_cast<UChar32>(*character))) {
        if (at > begin) take(text.substr(begin, at - begin), at_start && begin == 0);
        begin = next;
      }
      at = next;
    }
    if (begin < text.size()) take(text.substr(begin), at_start && begin == 0);
  }
};

class BertSplit final : public PieceStep {
 public:
  void cut(std::string_view text, bool at_start, const TakePiece& take) const override {
    for (const auto& word : bert_words(characters_of(text))) {
      std::string piece;
      for (const auto& c : word) append_utf8(piece, c.value);
      take(piece, at_start && word.front().source.begin == 0);
    }
  }
};

// By a pattern: what matches and what lies between are pieces, or the one of the two alone.
class PatternSplit final : public PieceStep {
 public:
  enum class Kept { kBoth, kMatches, kOthers };
  PatternSplit(const std::string& pattern, Kept kept) : split_(pattern), kept_(kept) {}

  void cut(std::string_view text, bool at_start, const TakePiece& take) const override {
    const auto scratch = TextSplit::make_scratch();
    split_.visit(text, *scratch, [&](std::string_view part, bool matches) {
      if (kept_ == Kept::kBoth || (kept_ == Kept::kMatches) == matches)
        take(part, at_start && part.data() == text.data());
    });
  }

 private:
  TextSplit split_;
  Kept kept_;
};

std::string escaped(const std::string& text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view(R"(\^$.|?*+()[]{})").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::unique_ptr<PieceStep> read_metaspace(const JsonView& view) {
  const auto blank = view.find("replacement");
  const auto scheme = view.find("prepend_scheme");
  auto prefix = view.flag_or("add_prefix_space", true) ? Metaspace::Prefix::kAlways : Metaspace::Prefix::kNever;
  if (scheme) {
    if (scheme->text() == "always") {
      prefix = Metaspace::Prefix::kAlways;
    } else if (scheme->text() == "first") {
      prefix = Metaspace::Prefix::kFirst;
    } else if (scheme->text() == "never") {
      prefix = Metaspace::Prefix::kNever;
    } else {
      scheme->refuse("always, first or never");
    }
  }
  if (blank && blank->text().empty()) blank->refuse("a character");
  return std::make_unique<Metaspace>(blank ? blank->text() : "\u2581", prefix, view.flag_or("split", true));
}

std::unique_ptr<PieceStep> read_split_step(const JsonView& view) {
  const JsonView behavior = view.at("behavior"), pattern = view.at("pattern");
  const bool is_removed = behavior.text() == "Removed";
  if (!is_removed && behavior.text() != "Isolated")
    behavior.refuse("Isolated or Removed", "use a tokenizer with one of these");
  const bool is_inverted = view.flag_or("invert", false);
  const auto plain = pattern.find("String");
  const std::string text = plain ? escaped(plain->text()) : pattern.at("Regex").text();
  if (text.empty()) pattern.refuse("a pattern");
  using Kept = PatternSplit::Kept;
  return std::make_unique<PatternSplit>(text, !is_removed ? Kept::kBoth : is_inverted ? Kept::kMatches : Kept::kOthers);
}

std::unique_ptr<PieceStep> read_piece_step(const JsonView& view) {
  const JsonView type_view = view.at("type");
  const std::string& type = type_view.text();
  using Kept = PatternSplit::Kept;
  if (type == "Metaspace") return read_metaspace(view);
  if (type == "WhitespaceSplit") return std::make_unique<WhitespaceSplit>();
  if (type == "BertPreTokenizer") return std::make_unique<BertSplit>();
  if (type == "Whitespace") return std::make_unique<PatternSplit>(R"(\w+|[^\w\s]+)", Kept::kMatches);
  if (type == "Digits")
    return std::make_unique<PatternSplit>(view.flag_or("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)",
                                          Kept::kBoth);
  if (type == "Split") return read_split_step(view);
  type_view.refuse("Metaspace, WhitespaceSplit, Whitespace, BertPreTokenizer, Digits or Split",
                   "use a tokenizer with one of these");
}

}  // namespace

std::vector<JsonView> list_steps(const JsonView& pre_tokenizer) {
  if (pre_tokenizer.at("type").text() != "Sequence") return {pre_tokenizer};
  const JsonView list = pre_tokenizer.at("pretokenizers");
  std::vector<JsonView> steps;
  for (std::size_t i = 0; i < list.list().size(); ++i) {
    const auto inner = list_steps(list.element(i));
    steps.insert(steps.end(), inner.begin(), inner.end());
  }
  return steps;
}

std::vector<std::unique_ptr<PieceStep>> read_piece_steps(const JsonView& pre_tokenizer) {
  std::vector<std::unique_ptr<PieceStep>> steps;
  for (const auto& step : list_steps(pre_tokenizer)) steps.push_back(read_piece_step(step));
  return steps;
}

}  // namespace gantry

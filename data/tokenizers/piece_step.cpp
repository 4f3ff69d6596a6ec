#include "gantry/data/tokenizers/piece_step.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unicode/uscript.h>

#include "gantry/core/base/utf8.h"
#include "gantry/data/bert_text.h"
#include "gantry/data/tokenizers/byte_level.h"
#include "gantry/data/tokenizers/characters.h"
#include "gantry/data/tokenizers/split_step.h"
#include "gantry/data/tokenizers/text_pattern.h"

namespace gantry {
namespace {

using Steps = std::vector<std::unique_ptr<PieceStep>>;

constexpr const char* kOneOfThese = "use a tokenizer with one of these";

// Spaces become a visible character, which is also put before the first word; pieces begin with it.
class Metaspace final : public PieceStep {
 public:
  enum class Prefix { kAlways, kFirst, kNever };
  Metaspace(std::string blank, Prefix prefix, bool splits)
      : blank_(std::move(blank)), prefix_(prefix), splits_(splits) {}

  void split(std::string_view text, bool at_start, const TakePiece& take) const override {
    std::string marked;
    for (const char c : text) c == ' ' ? marked += blank_ : marked += c;
    const bool has_prefix = prefix_ == Prefix::kAlways || (prefix_ == Prefix::kFirst && at_start);
    if (has_prefix && !marked.starts_with(blank_)) marked.insert(0, blank_);
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

// \w+|[^\w\s]+ as Rust's regular expressions read it; white space is dropped.
class WordSplit final : public PieceStep {
 public:
  void split(std::string_view text, bool at_start, const TakePiece& take) const override {
    enum Kind { kSpace, kWord, kOther };
    std::size_t begin = 0;
    Kind last = kSpace;
    for (std::size_t at = 0; at <= text.size();) {
      const auto [length, character] = at < text.size() ? first_utf8(text.substr(at)) : Utf8Piece{};
      const Kind kind = at == text.size() || is_white_space(*character) ? kSpace
                        : is_word_character(*character)                 ? kWord
                                                                        : kOther;
      if (kind != last) {
        if (last != kSpace) take(text.substr(begin, at - begin), at_start && begin == 0);
        begin = at;
        last = kind;
      }
      at += length;
    }
  }
};

// At changes of the script; blanks belong to the piece before them.
class ScriptSplit final : public PieceStep {
 public:
  void split(std::string_view text, bool at_start, const TakePiece& take) const override {
    constexpr int kAny = -1;
    int last = kAny;
    std::size_t begin = text.size();  // blanks at the start are dropped
    for (std::size_t at = 0; at < text.size();) {
      const auto [length, character] = first_utf8(text.substr(at));
      const int script = script_of(*character);
      if (script != kAny && script != last) {
        if (begin < at) take(text.substr(begin, at - begin), at_start && begin == 0);
        begin = at;
        last = script;
      }
      at += length;
    }
    if (begin < text.size()) take(text.substr(begin), at_start && begin == 0);
  }

 private:
  // Chinese and Japanese are one script. Blanks and characters that Unicode 9 lacks have any script.
  static int script_of(char32_t character) {
    if (character == ' ') return -1;
    if (character == 0x30FC) return USCRIPT_HAN;
    UErrorCode status = U_ZERO_ERROR;
    const UScriptCode script = uscript_getScript(static_cast<UChar32>(character), &status);
    if (script == USCRIPT_UNKNOWN || unicode_age(character) > 9) return -1;
    return script == USCRIPT_HIRAGANA || script == USCRIPT_KATAKANA ? USCRIPT_HAN : script;
  }
};

class ByteLevelStep final : public PieceStep {
 public:
  ByteLevelStep(bool add_prefix_space, bool uses_pattern, bool spells)
      : add_prefix_space_(add_prefix_space), spells_(spells) {
    if (uses_pattern) pattern_.emplace(kGpt2Pattern);
  }

  void split(std::string_view text, bool at_start, const TakePiece& take) const override {
    const std::string with_space = add_prefix_space_ && text[0] != ' ' ? fmt::format(" {}", text) : "";
    if (!with_space.empty()) text = with_space;
    const auto give = [&](std::string_view part, bool) {
      const bool part_at_start = at_start && part.data() == text.data();
      spells_ ? take(spelling_of(part), part_at_start) : take(part, part_at_start);
    };
    pattern_ ? pattern_->visit(text, give) : give(text, true);
  }

 private:
  bool add_prefix_space_, spells_;
  std::optional<TextPattern> pattern_;
};

Metaspace::Prefix read_prefix(const JsonView& view) {
  const auto scheme = view.find("prepend_scheme");
  if (!scheme) return view.flag_or("add_prefix_space", true) ? Metaspace::Prefix::kAlways : Metaspace::Prefix::kNever;
  if (scheme->text() == "always") return Metaspace::Prefix::kAlways;
  if (scheme->text() == "first") return Metaspace::Prefix::kFirst;
  if (scheme->text() == "never") return Metaspace::Prefix::kNever;
  scheme->refuse("always, first or never");
}

std::unique_ptr<PieceStep> read_metaspace(const JsonView& view) {
  const auto blank = view.find("replacement");
  if (blank && blank->text().empty()) blank->refuse("a character");
  return std::make_unique<Metaspace>(blank ? blank->text() : "\u2581", read_prefix(view), view.flag_or("split", true));
}

SplitBehavior read_behavior(const JsonView& view) {
  for (const auto& [name, behavior] :
       {std::pair("Isolated", SplitBehavior::kIsolated), std::pair("Removed", SplitBehavior::kRemoved),
        std::pair("Contiguous", SplitBehavior::kContiguous),
        std::pair("MergedWithPrevious", SplitBehavior::kMergedWithPrevious),
        std::pair("MergedWithNext", SplitBehavior::kMergedWithNext)})
    if (view.text() == name) return behavior;
  view.refuse("Isolated, Removed, Contiguous, MergedWithPrevious or MergedWithNext");
}

FindParts read_pattern(const JsonView& pattern) {
  if (const auto plain = pattern.find("String")) {
    if (plain->text().empty()) plain->refuse("a text");
    return parts_by_text(plain->text());
  }
  const auto compiled = std::make_shared<TextPattern>(pattern.at("Regex").text());
  return [compiled](std::string_view text, const TextPattern::Visit& visit) { compiled->visit(text, visit); };
}

Steps one(std::unique_ptr<PieceStep> step) {
  Steps steps;
  steps.push_back(std::move(step));
  return steps;
}

Steps one(FindParts parts, SplitBehavior behavior, bool inverted = false) {
  return one(std::make_unique<SplitStep>(std::move(parts), behavior, inverted));
}

}  // namespace

Steps read_piece_steps(const JsonView& view, bool spells_bytes) {
  using enum SplitBehavior;
  const JsonView type_view = view.at("type");
  const std::string& type = type_view.text();
  if (type == "ByteLevel")
    return one(std::make_unique<ByteLevelStep>(view.flag_or("add_prefix_space", true), view.flag_or("use_regex", true),
                                               spells_bytes));
  if (type == "Split")
    return one(read_pattern(view.at("pattern")), read_behavior(view.at("behavior")), view.flag_or("invert", false));
  if (type == "Metaspace") return one(read_metaspace(view));
  if (type == "Whitespace") return one(std::make_unique<WordSplit>());
  if (type == "WhitespaceSplit") return one(parts_by_class(is_white_space), kRemoved);
  if (type == "UnicodeScripts") return one(std::make_unique<ScriptSplit>());
  if (type == "Digits")
    return one(parts_by_class(is_numeric), view.flag_or("individual_digits", false) ? kIsolated : kContiguous);
  if (type == "Punctuation") {
    const auto behavior = view.find("behavior");
    return one(parts_by_class(is_bert_punctuation), behavior ? read_behavior(*behavior) : kIsolated);
  }
  if (type == "CharDelimiterSplit") {
    const JsonView delimiter = view.at("delimiter");
    if (delimiter.text().empty()) delimiter.refuse("a character");
    return one(parts_by_text(delimiter.text()), kRemoved);
  }
  if (type == "BertPreTokenizer") {
    Steps steps = one(parts_by_class(is_white_space), kRemoved);
    steps.push_back(std::make_unique<SplitStep>(parts_by_class(is_bert_punctuation), kIsolated, false));
    return steps;
  }
  type_view.refuse(
      "BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace, Punctuation, Sequence, Split, "
      "UnicodeScripts, Whitespace or WhitespaceSplit",
      kOneOfThese);
}

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

}  // namespace gantry

#include "gantry/data/tokenizers/normalizer.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <unicode/unorm2.h>
#include <unicode/uset.h>
#include <vector>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/data/bert_text.h"
#include "gantry/data/tokenizers/byte_level.h"
#include "gantry/data/tokenizers/characters.h"
#include "gantry/data/tokenizers/text_pattern.h"

namespace gantry {
namespace {

constexpr std::size_t kMostGrowth = 1000;  // growth in bytes; Unicode's normalizations need at most 33

// A normalizer that calls a function.
class Function final : public Normalizer {
 public:
  using Body = std::function<std::string(std::string_view)>;
  explicit Function(Body body) : body_(std::move(body)) {}
  std::string apply(std::string_view text) const override { return body_(text); }

 private:
  Body body_;
};

std::shared_ptr<const Normalizer> made_of(Function::Body body) { return std::make_shared<Function>(std::move(body)); }

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

void check_icu(UErrorCode status, const char* what) {
  if (U_FAILURE(status)) throw InternalError(fmt::format("ICU: {}: {}", what, u_errorName(status)));
}

// Returns one of Unicode's four normalization forms, restricted to the characters of Unicode 9.0.
std::shared_ptr<const UNormalizer2> unicode_form(const std::string& name) {
  UErrorCode status = U_ZERO_ERROR;
  static USet* const kKnown = [&status] {
    constexpr UChar kPattern[] = u"[:age=9.0:]";
    USet* set = uset_openPattern(kPattern, -1, &status);
    check_icu(status, "a set of characters");
    uset_freeze(set);
    return set;
  }();
  const UNormalizer2* whole = name == "NFC"    ? unorm2_getNFCInstance(&status)
                              : name == "NFD"  ? unorm2_getNFDInstance(&status)
                              : name == "NFKC" ? unorm2_getNFKCInstance(&status)
                                               : unorm2_getNFKDInstance(&status);
  UNormalizer2* known = unorm2_openFiltered(whole, kKnown, &status);
  check_icu(status, "a normalization form");
  return {known, unorm2_close};
}

std::string in_form(const UNormalizer2& form, std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  const std::u16string source = utf16_of(text);
  std::u16string made(2 * source.size() + 16, u'\0');
  for (;;) {
    UErrorCode status = U_ZERO_ERROR;
    const auto length = unorm2_normalize(&form, source.data(), static_cast<std::int32_t>(source.size()), made.data(),
                                         static_cast<std::int32_t>(made.size()), &status);
    made.resize(static_cast<std::size_t>(length));
    if (status == U_BUFFER_OVERFLOW_ERROR) continue;
    check_icu(status, "normalization");
    return utf8_of(made);
  }
}

std::string text_of(const TextCharacters& characters) {
  std::string text;
  for (const auto& c : characters) append_utf8(text, c.value);
  return text;
}

std::string without_marks(std::string_view text) {
  TextCharacters characters = characters_of(text);
  std::erase_if(characters, [](const auto& c) { return is_combining_mark(c.value); });
  return text_of(characters);
}

std::string stripped(std::string_view text, bool left, bool right) {
  const TextCharacters characters = characters_of(text);
  const auto is_space = [](const TextCharacter& c) { return is_white_space(c.value); };
  auto begin = characters.begin(), end = characters.end();
  if (left) begin = std::find_if_not(begin, end, is_space);
  while (right && end != begin && is_space(*(end - 1))) --end;
  return text_of({begin, end});
}

std::string replaced(std::string_view text, const std::string& from, const std::string& to) {
  std::string made;
  for (std::size_t at = 0;;) {
    const std::size_t found = text.find(from, at);
    made += text.substr(at, found - at);
    if (found == std::string_view::npos) return made;
    made += to;
    at = found + from.size();
  }
}

std::shared_ptr<const Normalizer> read_replace(const JsonView& view) {
  const std::string to = view.at("content").text();
  const JsonView pattern = view.at("pattern");
  if (const auto plain = pattern.find("String")) {
    const std::string from = plain->text();
    if (from.empty()) plain->refuse("a text to replace");
    return made_of([from, to](std::string_view text) { return replaced(text, from, to); });
  }
  const auto compiled = std::make_shared<TextPattern>(pattern.at("Regex").text());
  return made_of([compiled, to](std::string_view text) {
    std::string made;
    compiled->visit(text, [&](std::string_view part, bool matches) { made += matches ? std::string_view(to) : part; });
    return made;
  });
}

// Applies SentencePiece's nmt rules: some control characters are removed, others and special white space
// become spaces.
std::string without_controls(std::string_view text) {
  const auto is_removed = [](char32_t c) {
    return (c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
  };
  const auto is_blank = [](char32_t c) {
    return c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 ||
           c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  };
  std::string made;
  for (const auto& c : characters_of(text))
    if (!is_removed(c.value)) append_utf8(made, is_blank(c.value) ? U' ' : c.value);
  return made;
}

std::shared_ptr<const Normalizer> read_bert(const JsonView& view) {
  BertTextOptions options;
  options.clean_text = view.flag_or("clean_text", true);
  options.lower_case = view.flag_or("lowercase", true);
  options.strip_accents = view.flag_or("strip_accents", options.lower_case);
  options.tokenize_chinese_chars = view.flag_or("handle_chinese_chars", true);
  return made_of([options](std::string_view text) { return text_of(bert_normalise(characters_of(text), options)); });
}

std::shared_ptr<const Normalizer> read_sequence(const JsonView& view) {
  const JsonView list = view.at("normalizers");
  std::vector<std::shared_ptr<const Normalizer>> steps;
  for (std::size_t i = 0; i < list.list().size(); ++i) steps.push_back(read_normalizer(list.element(i)));
  return made_of([steps](std::string_view text) {
    std::string made(text);
    for (const auto& step : steps) {
      made = step->apply(made);
      if (made.size() > kMostGrowth * (text.size() + kMostGrowth))  // a hostile file could fill the memory
        throw InputError({"tokenizer's normalizer", fmt::format("it expands {} bytes to {}", text.size(), made.size()),
                          fmt::format("at most {} times as many", kMostGrowth), "download the file again"});
    }
    return made;
  });
}

}  // namespace

std::shared_ptr<const Normalizer> read_normalizer(const JsonView& view) {
  const JsonView type_view = view.at("type");
  const std::string& type = type_view.text();
  if (type == "Sequence") return read_sequence(view);
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD")
    return made_of([form = unicode_form(type)](std::string_view text) { return in_form(*form, text); });
  if (type == "Lowercase") return made_of([](std::string_view text) { return text_of(to_lower(characters_of(text))); });
  if (type == "StripAccents") return made_of(without_marks);
  if (type == "Strip")
    return made_of([left = view.flag_or("strip_left", true), right = view.flag_or("strip_right", true)](
                       std::string_view text) { return stripped(text, left, right); });
  if (type == "Prepend")
    return made_of([prefix = view.at("prepend").text()](std::string_view text) {
      return text.empty() ? std::string() : fmt::format("{}{}", prefix, text);
    });
  if (type == "Replace") return read_replace(view);
  if (type == "Nmt") return made_of(without_controls);
  if (type == "ByteLevel") return made_of(spelling_of);
  if (type == "Precompiled") {
    const JsonView table = view.at("precompiled_charsmap");
    return table.text().empty() ? made_of([](std::string_view text) { return std::string(text); })
                                : read_precompiled(table.text(), table.place());
  }
  if (type == "BertNormalizer") return read_bert(view);
  type_view.refuse(
      "Sequence, NFC, NFD, NFKC, NFKD, Nmt, Lowercase, StripAccents, Strip, Prepend, Replace, ByteLevel, Precompiled "
      "or BertNormalizer",
      "use a tokenizer with one of these");
}

}  // namespace gantry

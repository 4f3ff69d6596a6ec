// SentencePiece's table of replacements: a double-array trie (Darts-clone) of keys, and the texts that
// replace them.
#include <algorithm>
#include <fmt/format.h>
#include <unicode/ubrk.h>
#include <unicode/utext.h>
#include <vector>

#include "gantry/core/base/base64.h"
#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/data/tokenizers/normalizer.h"

namespace gantry {
namespace {

constexpr std::size_t kLongestAtOnce = 6;  // a longer grapheme is replaced character by character

std::uint32_t little_endian(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
  return value;
}

class Precompiled final : public Normalizer {
 public:
  Precompiled(const std::string& bytes, const std::string& place) {
    const std::size_t size = bytes.size() < 4 ? 0 : little_endian(bytes, 0);
    if (size == 0 || size % 4 != 0 || size > bytes.size() - 4)
      throw InputError({place, fmt::format("the table has {} bytes and a trie of {}", bytes.size(), size),
                        "SentencePiece's table: a size, a trie and strings", ""});
    for (std::size_t at = 4; at < 4 + size; at += 4) units_.push_back(little_endian(bytes, at));
    texts_ = bytes.substr(4 + size);
  }

  std::string apply(std::string_view text) const override {
    std::string made;
    made.reserve(text.size() + 16);
    visit_graphemes(text, [&](std::string_view grapheme) {
      std::string_view to;
      if (grapheme.size() < kLongestAtOnce && find(grapheme, to)) {
        made += to;
        return;
      }
      while (!grapheme.empty()) {
        const std::string_view character = grapheme.substr(0, utf8_length(grapheme[0]));
        made += find(character, to) ? to : character;
        grapheme.remove_prefix(character.size());
      }
    });
    return made;
  }

 private:
  // Finds the replacement of the table's shortest key that is a prefix of `key`. Hugging Face's reader does
  // the same, and models were trained with it. A replacement that is not valid UTF-8 is ignored.
  bool find(std::string_view key, std::string_view& to) const {
    std::size_t node = offset(units_[0]);
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte == 0) return false;
      node ^= byte;
      if (node >= units_.size() || (units_[node] & (1u << 31 | 0xFF)) != byte) return false;
      const std::uint32_t unit = units_[node];
      node ^= offset(unit);
      if ((unit >> 8 & 1) == 0) continue;
      if (node >= units_.size()) return false;
      const std::size_t begin = units_[node] & ((1u << 31) - 1);
      if (begin > texts_.size()) return false;
      to = std::string_view(texts_).substr(begin);
      to = to.substr(0, to.find('\0'));
      return valid_utf8_prefix(to) == to.size();
    }
    return false;
  }
  static std::size_t offset(std::uint32_t unit) {
    return static_cast<std::size_t>(unit >> 10) << ((unit & 1u << 9) >> 6);
  }

  template <class Take>
  static void visit_graphemes(std::string_view text, const Take& take) {
    const bool is_plain = text.find("\r\n") == std::string_view::npos &&
                          std::all_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x80; });
    if (is_plain) {
      for (std::size_t at = 0; at < text.size(); ++at) take(text.substr(at, 1));
      return;
    }
    UErrorCode status = U_ZERO_ERROR;
    const std::unique_ptr<UBreakIterator, void (*)(UBreakIterator*)> breaks(
        ubrk_open(UBRK_CHARACTER, "en", nullptr, 0, &status), ubrk_close);
    UText source = UTEXT_INITIALIZER;
    utext_openUTF8(&source, text.data(), static_cast<std::int64_t>(text.size()), &status);
    ubrk_setUText(breaks.get(), &source, &status);
    if (U_FAILURE(status)) throw InternalError(fmt::format("ICU: graphemes: {}", u_errorName(status)));
    for (std::int32_t begin = ubrk_first(breaks.get()), end; (end = ubrk_next(breaks.get())) != UBRK_DONE; begin = end)
      take(text.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
    utext_close(&source);
  }

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace

std::shared_ptr<const Normalizer> read_precompiled(const std::string& base64, const std::string& place) {
  const auto bytes = decode_base64(base64);
  if (!bytes) throw InputError({place, "the value is not base64", "SentencePiece's table", ""});
  return std::make_shared<Precompiled>(*bytes, place);
}

}  // namespace gantry

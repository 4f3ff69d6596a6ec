#include "gantry/data/tokenizers/utf8.h"

#include <cstring>

namespace gantry {
namespace {

// The second byte's range narrows where a first byte could begin an overlong form, a surrogate or what is past
// U+10FFFF.
struct Form {
  std::size_t length = 0;  // 0: no character begins so
  unsigned char low = 0x80, high = 0xBF;
};

Form form_of(unsigned char first) {
  if (first < 0x80) return {1};
  if (first < 0xC2 || first > 0xF4) return {};
  if (first < 0xE0) return {2};
  if (first == 0xE0) return {3, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first < 0xF0) return {3};
  if (first == 0xF0) return {4, 0x90, 0xBF};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  return {4};
}

// Bytes of the piece at the start of `text`, and whether it is a whole character.
std::pair<std::size_t, bool> next_piece(std::string_view text) {
  const Form form = form_of(static_cast<unsigned char>(text[0]));
  std::size_t length = 1;
  for (; length < form.length && length < text.size(); ++length) {
    const auto byte = static_cast<unsigned char>(text[length]);
    const bool is_second = length == 1;
    if (byte < (is_second ? form.low : 0x80) || byte > (is_second ? form.high : 0xBF)) break;
  }
  return {length, length == form.length};
}

std::size_t ascii_prefix(std::string_view text) {
  std::size_t at = 0;
  for (std::uint64_t word; at + sizeof word <= text.size(); at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    if (word & 0x8080808080808080u) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = ascii_prefix(text);
  while (at < text.size()) {
    const auto [length, is_whole] = next_piece(text.substr(at));
    if (!is_whole) break;
    at += length;
    at += ascii_prefix(text.substr(at));
  }
  return at;
}

std::string valid_utf8(std::string_view text, std::int64_t* replaced) {
  std::string valid;
  std::int64_t count = 0;
  while (!text.empty()) {
    const std::size_t good = valid_utf8_prefix(text);
    valid += text.substr(0, good);
    text.remove_prefix(good);
    if (text.empty()) break;
    text.remove_prefix(next_piece(text).first);
    valid += "\xEF\xBF\xBD";
    ++count;
  }
  if (replaced) *replaced = count;
  return valid;
}

}  // namespace gantry

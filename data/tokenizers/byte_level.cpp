#include "gantry/data/tokenizers/byte_level.h"

#include <algorithm>
#include <unordered_map>

#include "gantry/core/base/utf8.h"

namespace gantry {
namespace {

bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

}  // namespace

// A printable byte is its own character, the others are U+0100, U+0101, ... in order.
const std::array<std::string, 256>& byte_spellings() {
  static const auto kSpellings = [] {
    std::array<std::string, 256> spellings;
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte)
      append_utf8(spellings[byte], static_cast<char32_t>(is_printable(byte) ? byte : next++));
    return spellings;
  }();
  return kSpellings;
}

std::string spelling_of(std::string_view bytes) {
  std::string spelling;
  for (const char c : bytes) spelling += byte_spellings()[static_cast<unsigned char>(c)];
  return spelling;
}

std::optional<std::string> spelled_bytes(std::string_view token) {
  static const auto kBytes = [] {
    std::unordered_map<std::string_view, char> bytes;
    for (int byte = 0; byte < 256; ++byte) bytes[byte_spellings()[byte]] = static_cast<char>(byte);
    return bytes;
  }();
  std::string bytes;
  while (!token.empty()) {
    const std::size_t length = std::min(utf8_length(token[0]), token.size());
    const auto found = kBytes.find(token.substr(0, length));
    if (found == kBytes.end()) return std::nullopt;
    bytes += found->second;
    token.remove_prefix(length);
  }
  return bytes;
}

std::string bytes_of_token(std::string_view token) { return spelled_bytes(token).value_or(std::string(token)); }

}  // namespace gantry

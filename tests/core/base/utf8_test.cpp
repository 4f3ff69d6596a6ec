// Decoding of UTF-8: valid characters and invalid bytes.
#include "gantry/core/base/utf8.h"

#include <gtest/gtest.h>
#include <iterator>

namespace gantry::testing {
namespace {

struct Begun {
  std::string_view text;
  std::size_t length;
  std::optional<char32_t> character;
};

TEST(Utf8, ATextBeginsWithACharacterOrWithNone) {
  const Begun cases[] = {
      {{"\0", 1}, 1, 0},
      {"\x7f", 1, 0x7F},
      {"\xc2\x80z", 2, 0x80},
      {"\xdf\xbf", 2, 0x7FF},
      {"\xe0\xa0\x80", 3, 0x800},
      {"\xed\x9f\xbf", 3, 0xD7FF},
      {"\xee\x80\x80", 3, 0xE000},
      {"\xef\xbf\xbf", 3, 0xFFFF},
      {"\xf0\x90\x80\x80", 4, 0x10000},
      {"\xf4\x8f\xbf\xbf", 4, 0x10FFFF},
      // Truncated.
      {"\xc3", 1, {}},
      {"\xe4\xb8", 2, {}},
      {"\xf0\x9f\x98", 3, {}},
      {"\xe4\xb8z", 2, {}},
      {"\xf0\x9f\xc3\xa4", 2, {}},
      // Bytes that cannot begin a character.
      {"\x80", 1, {}},
      {"\xbf\xbf", 1, {}},
      {"\xfe", 1, {}},
      {"\xff", 1, {}},
      // Overlong encodings.
      {"\xc0\x80", 1, {}},
      {"\xc1\xbf", 1, {}},
      {"\xe0\x9f\xbf", 1, {}},
      {"\xf0\x8f\xbf\xbf", 1, {}},
      // Surrogates.
      {"\xed\xa0\x80", 1, {}},
      {"\xed\xbf\xbf", 1, {}},
      // Above U+10FFFF.
      {"\xf4\x90\x80\x80", 1, {}},
      {"\xf5\x80\x80\x80", 1, {}},
  };
  for (const auto& [text, length, character] : cases) {
    const Utf8Piece piece = first_utf8(text);
    const std::string shown = ::testing::PrintToString(text);
    EXPECT_EQ(piece.length, length) << shown;
    EXPECT_EQ(piece.character, character) << shown;
    EXPECT_EQ(valid_utf8_prefix(text.substr(0, length)), character ? length : 0) << shown;
  }
}

TEST(Utf8, BrokenPiecesAreReplacedOneByOne) {
  std::int64_t replaced = 0;
  EXPECT_EQ(valid_utf8("a\xff\xfe z", &replaced), "a\ufffd\ufffd z");
  EXPECT_EQ(replaced, 2);
  EXPECT_EQ(valid_utf8("12345678\xe4\xb8", &replaced), "12345678\ufffd");
  EXPECT_EQ(replaced, 1);
  EXPECT_EQ(valid_utf8("\xed\xa0\x80", &replaced), "\ufffd\ufffd\ufffd");
  EXPECT_EQ(replaced, 3);
  EXPECT_EQ(valid_utf8("\xf0\x9f\x98\x80", &replaced), "\U0001f600");
  EXPECT_EQ(replaced, 0);
  EXPECT_EQ(valid_utf8_prefix("abcdefgh\u00e9\u4e2d\xed\xa0\x80"), 13u);
}

TEST(Utf8, EveryCharacterReadsBackAsItWasWritten) {
  for (char32_t character = 0; character <= 0x10FFFF; ++character) {
    if (character == 0xD800) character = 0xE000;
    std::string text;
    append_utf8(text, character);
    const Utf8Piece piece = first_utf8(text);
    ASSERT_EQ(piece.character, character);
    ASSERT_EQ(piece.length, text.size());
    ASSERT_EQ(utf8_length(text[0]), text.size());
    ASSERT_EQ(utf8_of(utf16_of(text)), text);
  }
  EXPECT_EQ(utf16_of("a\U0001f600\xff"), u"a\U0001f600\ufffd");
}

TEST(Utf8, PlacesAreCountedInCharacters) {
  const std::string text = "a\u00e9\u4e2d\U0001f600";
  EXPECT_EQ(utf8_count(text), 4u);
  const std::size_t starts[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};
  for (std::size_t at = 0; at < std::size(starts); ++at) EXPECT_EQ(utf8_start(text, at), starts[at]) << at;
}

}  // namespace
}  // namespace gantry::testing

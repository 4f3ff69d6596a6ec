// The rules for JSON that may be hostile. All readers of such JSON share them.
#include "gantry/core/io/strict_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/base/utf8.h"

namespace gantry::testing {
namespace {

using ::testing::StartsWith;

TEST(StrictJson, FaultsAreNamed) {
  const std::string deepest = std::string(64, '[') + std::string(64, ']');
  const std::string long_key(300, 'k');
  const std::pair<std::string, std::string> cases[] = {
      {"{}", ""},
      {" 1 ", ""},
      {R"({"a": {"a": 1}, "b": [{"a": 1}, {"a": 1}]})", ""},
      {deepest, ""},
      {"", "the text is not JSON at byte 1"},
      {"{", "the text is not JSON at byte 2"},
      {"{} x", "the text is not JSON at byte 4"},
      {std::string("{}\0", 3), "the text is not JSON at byte 3"},
      {"[1e999]", "the text is not JSON at byte"},
      {"[\"\xff\"]", "the text is not JSON at byte 3"},
      {"[" + deepest + "]", "the JSON is nested deeper than 64 levels"},
      {R"({"x":)" + std::string(100'000, '{'), "the text is not JSON at byte"},
      {std::string(100'000, '['), "the JSON is nested deeper than 64 levels"},
      {R"({"a": 1, "a": 2})", "the key 'a' appears twice"},
      {R"([{"b": {"c": 1, "\u0063": 2}}])", "the key 'c' appears twice"},
      {"{\"" + long_key + "\": 1, \"" + long_key + "\": 2}", "the key '" + long_key.substr(0, 100) + "' appears twice"},
  };
  for (const auto& [text, fault] : cases) {
    const std::string found = json_fault(text);
    if (fault.empty()) EXPECT_EQ(found, "") << text;
    EXPECT_THAT(found, StartsWith(fault)) << text.substr(0, 100);
  }
}

TEST(StrictJson, AKeyIsShownInWholeCharacters) {
  std::string key;
  while (key.size() < 200) append_utf8(key, 0x4E2D);
  const std::string fault = json_fault("{\"" + key + "\": 1, \"" + key + "\": 2}");
  EXPECT_EQ(valid_utf8_prefix(fault), fault.size());
}

TEST(StrictJson, WhoReadsPieceByPieceHasTheSameRules) {
  JsonNesting nesting;
  EXPECT_EQ(nesting.open(), "");
  EXPECT_EQ(nesting.key("a"), "");
  EXPECT_EQ(nesting.open(), "");
  EXPECT_EQ(nesting.key("a"), "");
  EXPECT_EQ(nesting.depth(), 2u);
  nesting.close();
  EXPECT_EQ(nesting.key("a"), "the key 'a' appears twice");
  while (nesting.depth() < 64) EXPECT_EQ(nesting.open(), "");
  EXPECT_EQ(nesting.open(), "the JSON is nested deeper than 64 levels");
}

}  // namespace
}  // namespace gantry::testing

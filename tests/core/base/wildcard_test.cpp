// Patterns of names, with both meanings of a star.
#include "gantry/core/base/wildcard.h"

#include <gtest/gtest.h>
#include <string>

namespace gantry::testing {
namespace {

struct Match {
  const char *pattern, *name;
  bool any_text, one_part;
};

TEST(Wildcard, MatchesWholeNames) {
  const Match cases[] = {
      {"", "", true, true},
      {"", "a", false, false},
      {"a", "", false, false},
      {"a", "a", true, true},
      {"a", "ab", false, false},
      {"h.0.ln", "h.0.ln", true, true},
      {"h.0.ln", "h.0.ln.weight", false, false},
      {"*", "", true, true},
      {"*", "a", true, true},
      {"*", "a.b", true, false},
      {"**", "a", true, true},
      {"*.bias", "h.0.attn.bias", true, false},
      {"*.bias", "attn.bias", true, true},
      {"*.bias", "bias", false, false},
      {"*.bias", "attn.biased", false, false},
      {"h.*.attn", "h.3.attn", true, true},
      {"h.*.attn", "h.3.mlp", false, false},
      {"h.*.attn", "h.attn", false, false},
      {"h.*", "h.0", true, true},
      {"h.*", "h.0.attn", true, false},
      {"h.*", "h", false, false},
      {"h.*.*.bias", "h.11.attn.bias", true, true},
      {"*ln*", "h.0.ln_1.weight", true, false},
      {"*ln*", "ln_1", true, true},
      {"*.ab", "x.aab.ab", true, false},
      {"x*ab", "xaaab", true, true},
      {"a*b*c", "a.b.c", true, false},
      {"a*b*c", "aXbYbZc", true, true},
      {"a*b*c", "aXbYbZ", false, false},
  };
  for (const auto& [pattern, name, any_text, one_part] : cases) {
    EXPECT_EQ(matches_pattern(pattern, name, Star::kAnyText), any_text) << pattern << " " << name;
    EXPECT_EQ(matches_pattern(pattern, name, Star::kOnePart), one_part) << pattern << " " << name;
  }
}

TEST(Wildcard, ManyStarsTakeNoLongTime) {
  std::string pattern;
  for (int i = 0; i < 1000; ++i) pattern += "*a";
  EXPECT_FALSE(matches_pattern(pattern + "b", std::string(10'000, 'a'), Star::kAnyText));
}

}  // namespace
}  // namespace gantry::testing

#include "gantry/core/layout_string.h"

#include <cctype>
#include <cstddef>
#include <fmt/format.h>
#include <string_view>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

// Parses Megatron's layout string. A fault names the character that causes it.
class LayoutParser {
 public:
  LayoutParser(const std::string& text, const std::string& where) : text_(text), where_(where) {}

  LayoutString parse() {
    const std::vector<Part> parts = expand(0);
    if (position_ != text_.size()) fail(position_, "')' without '('");
    LayoutString layout{.layers = {0}};
    std::vector<int>& layers = layout.layers;
    std::size_t stage_of_mtp = 0;
    bool embedding = false, loss = false;
    for (const auto& [kind, position] : parts) {
      if (loss) fail(position, "a part follows the loss 'L'");
      if (kind == '|') layers.push_back(0);
      if (kind == 't' && layout.mtp > 0) fail(position, "a layer 't' follows a layer of multi-token prediction 'm'");
      if (kind == 't' || kind == 'm') ++layers.back();
      if (kind == 'm') {
        if (layout.mtp++ == 0) stage_of_mtp = layers.size();
        if (stage_of_mtp != layers.size())
          fail(position, "the layers of multi-token prediction 'm' are in several stages");
      }
      if (kind == 'E') {
        if (embedding || layers.size() > 1 || layers.back() > 0)
          fail(position, "the embedding 'E' is not at the start, or appears twice");
        embedding = true;
      }
      if (kind == 'L') loss = true;
    }
    if (!embedding) fail(0, "the embedding 'E' is missing at the start");
    if (!loss) fail(text_.size(), "the loss 'L' is missing at the end");
    return layout;
  }

 private:
  static constexpr std::size_t kMaxParts = 100000;

  struct Part {
    char kind;             // E t m L |
    std::size_t position;  // position in the text
  };

  std::vector<Part> expand(int depth) {
    std::vector<Part> out;
    while (position_ < text_.size() && text_[position_] != ')') {
      const std::size_t begin = position_;
      const std::vector<Part> once = next(depth);
      const std::size_t times = repeat_count();
      if (once.size() * times + out.size() > kMaxParts) fail(begin, "the layout has too many parts");
      for (std::size_t i = 0; i < times; ++i) out.insert(out.end(), once.begin(), once.end());
    }
    return out;
  }

  // Parses one character or an expression in parentheses; returns nothing for a comma or a blank.
  std::vector<Part> next(int depth) {
    const std::size_t begin = position_++;
    const char c = text_[begin];
    if (c == ',' || c == ' ') return {};
    if (c == 'E' || c == 't' || c == 'm' || c == 'L' || c == '|') return {{c, begin}};
    if (c != '(') fail(begin, fmt::format("'{}' is not one of E t m L | ( ) * ,", character_at(begin)));
    if (depth > 8) fail(begin, "the parentheses are nested too deep");
    std::vector<Part> inner = expand(depth + 1);
    if (position_ == text_.size()) fail(begin, "'(' without ')'");
    ++position_;
    return inner;
  }

  std::size_t repeat_count() {
    if (position_ >= text_.size() || text_[position_] != '*') return 1;
    const std::size_t star = position_++;
    std::size_t count = 0, digits = 0;
    for (; position_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[position_])) && digits < 6;
         ++position_, ++digits)
      count = count * 10 + (text_[position_] - '0');
    if (digits == 0) fail(star, "'*' without a count");
    return count;
  }

  // The full character, which may have several bytes.
  std::string character_at(std::size_t begin) const {
    return text_.substr(begin, first_utf8(std::string_view(text_).substr(begin)).length);
  }

  [[noreturn]] void fail(std::size_t position, const std::string& what) const {
    throw ConfigError(
        {where_, fmt::format("'{}' at position {}: {}", text_, position + 1, what),
         "a layout such as \"Et*3|(tt|)*2t|L\"",
         "E embedding, t layer, m layer of multi-token prediction, L loss, | next stage, (..)*n repeats"});
  }

  const std::string& text_;
  const std::string& where_;
  std::size_t position_ = 0;
};

}  // namespace

LayoutString parse_layout_string(const std::string& text, const std::string& where) {
  return LayoutParser(text, where).parse();
}

}  // namespace gantry

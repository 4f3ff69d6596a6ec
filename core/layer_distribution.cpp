#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "gantry/core/error.h"
#include "gantry/core/pipeline_stage_manager.h"
#include "gantry/core/utf8.h"

namespace gantry {
namespace {

void require_enough_layers(int layers, int stages) {
  if (stages < 1) throw ConfigError({"schedule.layers", fmt::format("{} stages", stages), "at least 1", ""});
  if (stages > layers) {
    throw ConfigError({"schedule.layers",
                       fmt::format("{} layers over {} stages leaves {} stages empty", layers, stages, stages - layers),
                       "at least one layer per stage",
                       fmt::format("use at most {} stages, or a list with empty stages", layers)});
  }
}

// Parses Megatron's layout string. A fault names the character that causes it.
class LayoutParser {
 public:
  LayoutParser(const std::string& text, const std::string& where) : text_(text), where_(where) {}

  std::vector<int> parse() {
    const std::vector<Part> parts = expand(0);
    if (position_ != text_.size()) fail(position_, "')' without '('");
    std::vector<int> layers{0};
    bool embedding = false, loss = false;
    for (const auto& [kind, position] : parts) {
      if (loss) fail(position, "a part follows the loss 'L'");
      if (kind == '|') layers.push_back(0);
      if (kind == 't') ++layers.back();
      if (kind == 'E') {
        if (embedding || layers.size() > 1 || layers.back() > 0)
          fail(position, "the embedding 'E' is not at the start, or appears twice");
        embedding = true;
      }
      if (kind == 'L') loss = true;
    }
    if (!embedding) fail(0, "the embedding 'E' is missing at the start");
    if (!loss) fail(text_.size(), "the loss 'L' is missing at the end");
    return layers;
  }

 private:
  static constexpr std::size_t kMaxParts = 100000;

  struct Part {
    char kind;             // E t L |
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
    if (c == 'E' || c == 't' || c == 'L' || c == '|') return {{c, begin}};
    if (c == 'm') fail(begin, "multi-token prediction layers 'm' are not supported");
    if (c != '(') fail(begin, fmt::format("'{}' is not one of E t L | ( ) * ,", character_at(begin)));
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
    throw ConfigError({where_, fmt::format("'{}' at position {}: {}", text_, position + 1, what),
                       "a layout such as \"Et*3|(tt|)*2t|L\"",
                       "E embedding, t layer, L loss, | next stage, (..)*n repeats"});
  }

  const std::string& text_;
  const std::string& where_;
  std::size_t position_ = 0;
};

}  // namespace

std::vector<int> distribute_layers(int layers, int stages) {
  require_enough_layers(layers, stages);
  std::vector<int> counts(stages, layers / stages);
  const int remainder = layers % stages;
  const int start = stages / 2 - remainder / 2;
  for (int i = 0; i < remainder; ++i) ++counts[start + i];
  return counts;
}

std::vector<int> parse_layout_string(const std::string& text, const std::string& where) {
  return LayoutParser(text, where).parse();
}

std::vector<LayerRange> layer_ranges(const std::vector<int>& layers_of_stage, int layers, int stages) {
  const int total = std::accumulate(layers_of_stage.begin(), layers_of_stage.end(), 0);
  if (static_cast<int>(layers_of_stage.size()) != stages || total != layers) {
    throw ConfigError({"schedule.layers",
                       fmt::format("{} stages with {} layers in all ({})", layers_of_stage.size(), total,
                                   fmt::join(layers_of_stage, " + ")),
                       fmt::format("{} stages with {} layers", stages, layers), "every layer in exactly one stage"});
  }
  std::vector<LayerRange> ranges;
  int begin = 0;
  for (const int count : layers_of_stage) {
    if (count < 0) throw ConfigError({"schedule.layers", fmt::format("{} layers", count), "counts of at least 0", ""});
    ranges.push_back({begin, begin + count});
    begin += count;
  }
  return ranges;
}

}  // namespace gantry

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "gantry/core/error.h"
#include "gantry/core/pipeline_stage_manager.h"

namespace gantry {
namespace {

void require_enough_layers(int layers, int stages) {
  if (stages < 1) throw ConfigError({"schedule.layers", fmt::format("{} stages", stages), "at least 1", ""});
  if (stages > layers) {
    throw ConfigError({"schedule.layers",
                       fmt::format("{} layers over {} stages leaves {} stages empty", layers, stages, stages - layers),
                       "at least one layer a stage",
                       fmt::format("use at most {} stages, or state empty stages by a list", layers)});
  }
}

// The stages needed when none may cost more than `limit`; greedy is optimal, since layers cost the same.
bool fits(int layers, int stages, double first_cost, double last_cost, double limit, std::vector<int>* counts) {
  counts->assign(stages, 1);
  int left = layers - stages;
  for (int stage = 0; stage < stages; ++stage) {
    double room = limit - 1 - (stage == 0 ? first_cost : 0) - (stage == stages - 1 ? last_cost : 0);
    if (room < -1e-9) return false;
    const int more = std::min(left, static_cast<int>(room + 1e-9));
    (*counts)[stage] += more;
    left -= more;
  }
  return left == 0;
}

// Reads Megatron's layout string part by part.
class LayoutParser {
 public:
  explicit LayoutParser(const std::string& text) : text_(text) {}

  std::vector<int> parse() {
    const std::string flat = expand(0);
    if (position_ != text_.size()) fail("')' without '('");
    std::vector<int> layers{0};
    bool embedding = false, loss = false;
    for (const char c : flat) {
      if (loss) fail("something follows the loss 'L'");
      if (c == '|') layers.push_back(0);
      if (c == 't') ++layers.back();
      if (c == 'E') {
        if (embedding || layers.size() > 1 || layers.back() > 0)
          fail("the embedding 'E' is not at the start, or there twice");
        embedding = true;
      }
      if (c == 'L') loss = true;
    }
    if (!embedding) fail("there is no embedding 'E' at the start");
    if (!loss) fail("there is no loss 'L' at the end");
    return layers;
  }

 private:
  static constexpr std::size_t kMaxParts = 100000;

  std::string expand(int depth) {
    std::string out;
    while (position_ < text_.size() && text_[position_] != ')') {
      const char c = text_[position_];
      std::string part;
      if (c == '(') {
        if (depth > 8) fail("too deep");
        ++position_;
        part = expand(depth + 1);
        if (position_ == text_.size()) fail("'(' without ')'");
        ++position_;
      } else if (c == ',' || c == ' ') {
        ++position_;
        continue;
      } else if (c == 'm') {
        fail("multi-token prediction layers 'm' are not supported");
      } else if (c == 'E' || c == 't' || c == 'L' || c == '|') {
        part = std::string(1, c);
        ++position_;
      } else {
        fail(fmt::format("'{}' is none of E t L | ( ) * ,", c));
      }
      const std::size_t times = repeat_count();
      if (part.size() * times + out.size() > kMaxParts) fail("too many parts");
      for (std::size_t i = 0; i < times; ++i) out += part;
    }
    return out;
  }

  std::size_t repeat_count() {
    if (position_ >= text_.size() || text_[position_] != '*') return 1;
    ++position_;
    std::size_t count = 0, digits = 0;
    for (; position_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[position_])) && digits < 6;
         ++position_, ++digits)
      count = count * 10 + (text_[position_] - '0');
    if (digits == 0) fail("'*' without a count");
    return count;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError({"schedule.layers", fmt::format("'{}' at position {}: {}", text_, position_ + 1, what),
                       "a layout such as \"Et*3|(tt|)*2t|L\"",
                       "E embedding, t layer, L loss, | next stage, (..)*n repeats"});
  }

  const std::string& text_;
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

std::vector<int> distribute_layers_balanced(int layers, int stages, double first_cost, double last_cost) {
  require_enough_layers(layers, stages);
  // The best limit is one at which some stage is exactly full: whole layers, plus one end's cost.
  std::vector<double> limits;
  for (int whole = 1; whole <= layers; ++whole)
    for (const double extra : {0.0, first_cost, last_cost, first_cost + last_cost}) limits.push_back(whole + extra);
  std::sort(limits.begin(), limits.end());
  std::vector<int> counts;
  for (const double limit : limits)
    if (fits(layers, stages, first_cost, last_cost, limit, &counts)) break;
  return counts;
}

std::vector<int> parse_layout_string(const std::string& text) { return LayoutParser(text).parse(); }

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

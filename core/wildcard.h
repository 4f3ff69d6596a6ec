// Patterns of names: in the optimizer's lists of parameters and in shard plans.
#pragma once

#include <string_view>

namespace gantry {

// What a "*" stands for in names of parts with dots between them, "h.3.attn.bias".
enum class Star {
  kAnyText,  // any characters, dots too: "*.bias" is each bias
  kOnePart,  // characters without a dot: "h.*.attn" is the attention of each layer
};

// True if the pattern is the whole name; other characters stand for themselves. Takes time in proportion to the product
// of their lengths at most.
bool matches_pattern(std::string_view pattern, std::string_view name, Star star);

}  // namespace gantry

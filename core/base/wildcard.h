// Patterns of names, for the optimizer's lists of parameters and for shard plans.
#pragma once

#include <string_view>

namespace gantry {

// The characters that "*" matches in names with dots, such as "h.3.attn.bias".
enum class Star {
  kAnyText,  // any characters, dots too: "*.bias" is each bias
  kOnePart,  // characters without a dot: "h.*.attn" is the attention of each layer
};

// True if the pattern matches the complete name; all other characters match themselves. Takes time proportional to the
// product of both lengths at most.
bool matches_pattern(std::string_view pattern, std::string_view name, Star star);

}  // namespace gantry

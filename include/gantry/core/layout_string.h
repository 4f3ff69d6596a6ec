// Megatron's layout string: the distribution of layers over stages as one text, for `schedule.layers`.
#pragma once

#include <string>
#include <vector>

namespace gantry {

struct LayoutString {
  std::vector<int> layers;  // number of layers of each stage, with those of multi-token prediction
  int mtp = 0;              // number of layers of multi-token prediction, the last ones of all stages
};

// Parses Megatron's layout string. Stages are separated by '|'. E is the embedding, t a layer, m a layer of multi-token
// prediction, L the loss. All m follow the last t and are in one stage, which may be that of L or an earlier one. "t*3"
// and "(tt|)*29" repeat; commas are ignored. Throws ConfigError with the position of the fault, counted from 1.
LayoutString parse_layout_string(const std::string& text, const std::string& where = "schedule.layers");

}  // namespace gantry

// Megatron's layout string: the distribution of layers over stages as one text, for `schedule.layers`.
#pragma once

#include <string>
#include <vector>

namespace gantry {

// Parses Megatron's layout string and returns the number of layers of each stage. Stages are separated by '|'. E is the
// embedding, t a layer, L the loss; m (a multi-token prediction layer) is rejected. "t*3" and "(tt|)*29" repeat; commas
// are ignored. Throws ConfigError with the position of the fault, counted from 1.
std::vector<int> parse_layout_string(const std::string& text, const std::string& where = "schedule.layers");

}  // namespace gantry

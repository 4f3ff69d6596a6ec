// What `gantry checkpoint diff` prints.
#pragma once

#include <string>
#include <vector>

#include "gantry/checkpoint/format/difference.h"
#include "gantry/cli/commands.h"

namespace gantry::cli {

// `all` in the order of compare_tensors(); `a` and `b` as they were opened.
void print_differences(const std::vector<TensorDifference>& all, const std::string& a, const std::string& b,
                       const CheckpointDiffArguments& arguments);

}  // namespace gantry::cli

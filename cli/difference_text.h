// The output of `gantry checkpoint diff`.
#pragma once

#include <string>
#include <vector>

#include "gantry/checkpoint/format/difference.h"
#include "gantry/cli/commands.h"

namespace gantry::cli {

// Prints `all`, in the order of compare_tensors(). `a` and `b` are the paths that were opened.
void print_differences(const std::vector<TensorDifference>& all, const std::string& a, const std::string& b,
                       const CheckpointDiffArguments& arguments);

}  // namespace gantry::cli

// Keeps the options of an optimizer's groups as the caller has set them.
#pragma once

#include <vector>

#include <torch/optim/optimizer.h>

namespace gantry {

// `held`: the groups of an optimizer that was constructed from `stated`. The constructors of LibTorch 2.13
// replace a group's options by the defaults. They keep only options whose class they know and whose values
// differ from a new object's. This function restores the options of each group that sets some.
inline void keep_group_options(std::vector<torch::optim::OptimizerParamGroup>& held,
                               const std::vector<torch::optim::OptimizerParamGroup>& stated) {
  for (std::size_t i = 0; i < stated.size(); ++i)
    if (stated[i].has_options()) held[i].set_options(stated[i].options().clone());
}

}  // namespace gantry

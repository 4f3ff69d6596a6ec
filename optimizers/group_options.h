// The options of an optimizer's groups as its maker has stated them.
#pragma once

#include <vector>

#include <torch/optim/optimizer.h>

namespace gantry {

// `held` are an optimizer's groups, made of `stated`. LibTorch 2.13's constructors give a group the defaults,
// and of its own options those alone whose class they know and that differ from a new one's; here each group that
// states options has those again.
inline void keep_group_options(std::vector<torch::optim::OptimizerParamGroup>& held,
                               const std::vector<torch::optim::OptimizerParamGroup>& stated) {
  for (std::size_t i = 0; i < stated.size(); ++i)
    if (stated[i].has_options()) held[i].set_options(stated[i].options().clone());
}

}  // namespace gantry

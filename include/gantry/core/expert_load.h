// How evenly the experts of a model were used in a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gantry {

// Of the experts of one layer.
struct ExpertLoad {
  std::string router;                // its path in the model
  std::vector<std::int64_t> tokens;  // that have chosen each expert: of all ranks, without padding

  // The tokens of the expert that has most, over the mean: 1 where all have as many; 0 where no token counted.
  double largest_over_mean() const;
};

struct ExpertLoads {
  std::vector<ExpertLoad> layers = {};  // in the model's order; none: the model has no nn::Router
  std::int64_t dropped = 0;             // choices of tokens that no expert has computed, padding among them
};

}  // namespace gantry

// How evenly the experts of a model were used in a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gantry {

// The load of the experts of one layer.
struct ExpertLoad {
  std::string router;                // path of the router in the model
  std::vector<std::int64_t> tokens;  // number of tokens that chose each expert: over all ranks, without padding

  // The largest number of tokens of an expert divided by the mean: 1 if the load is even, 0 if there are no tokens.
  double largest_over_mean() const;
};

struct ExpertLoads {
  std::vector<ExpertLoad> layers = {};  // in the order of the model; empty: the model has no nn::Router
  std::int64_t dropped = 0;  // number of token-expert choices that no expert computed, including those of padding
};

}  // namespace gantry

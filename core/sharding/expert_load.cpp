#include "gantry/core/expert_load.h"

#include <algorithm>
#include <numeric>

namespace gantry {

double ExpertLoad::largest_over_mean() const {
  const auto all = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
  if (all == 0) return 0;
  const auto largest = *std::max_element(tokens.begin(), tokens.end());
  return static_cast<double>(largest) * static_cast<double>(tokens.size()) / static_cast<double>(all);
}

}  // namespace gantry

// The state that each level of ZeRO (Rajbhandari et al., arXiv 1910.02054) shards over the replicas of a parameter.
// Used for gradients, master weights, memory estimates and the planner.
#pragma once

#include <array>
#include <cstddef>

namespace gantry {

struct ZeroLevel {
  bool states = false;     // the optimizer's state, and the master weights of lower precisions
  bool gradients = false;  // as soon as a bucket is complete
  bool parameters = false;
};

inline constexpr std::array kZeroLevels = {ZeroLevel{}, ZeroLevel{.states = true},
                                           ZeroLevel{.states = true, .gradients = true},
                                           ZeroLevel{.states = true, .gradients = true, .parameters = true}};
inline constexpr int kHighestZero = 3;

// `level`: parallel.zero, 0 to 3.
constexpr const ZeroLevel& zero_level(int level) { return kZeroLevels.at(static_cast<std::size_t>(level)); }

}  // namespace gantry

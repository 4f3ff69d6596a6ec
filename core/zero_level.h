// What each level of ZeRO (Rajbhandari et al., arXiv 1910.02054) partitions over the replicas of a parameter. Whatever
// depends on the level asks this table: strategies of gradients, masters, bytes of memory, the planner.
#pragma once

#include <array>
#include <cstddef>

namespace gantry {

struct ZeroLevel {
  bool states = false;     // the optimizer's, and masters of lower precisions
  bool gradients = false;  // as soon as a bucket of them is whole
  bool parameters = false;
};

inline constexpr std::array kZeroLevels = {ZeroLevel{}, ZeroLevel{.states = true},
                                           ZeroLevel{.states = true, .gradients = true},
                                           ZeroLevel{.states = true, .gradients = true, .parameters = true}};
inline constexpr int kHighestZero = 3;

// `level`: parallel.zero, 0 to 3.
constexpr const ZeroLevel& zero_level(int level) { return kZeroLevels.at(static_cast<std::size_t>(level)); }

}  // namespace gantry

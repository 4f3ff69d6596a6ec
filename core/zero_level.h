// What each level of ZeRO (Rajbhandari et al., arXiv 1910.02054) partitions over the replicas of a parameter. Whatever
// depends on the level asks this table: strategies of gradients, masters, bytes of memory.
#pragma once

#include <array>
#include <cstddef>

namespace gantry {

struct ZeroLevel {
  bool states = false;     // the optimizer's, and masters of lower precisions
  bool gradients = false;  // as soon as a bucket of them is whole
};

inline constexpr std::array kZeroLevels = {ZeroLevel{}, ZeroLevel{.states = true},
                                           ZeroLevel{.states = true, .gradients = true}};

// `level`: parallel.zero, which the configuration keeps within the table.
constexpr const ZeroLevel& zero_level(int level) { return kZeroLevels.at(static_cast<std::size_t>(level)); }

}  // namespace gantry

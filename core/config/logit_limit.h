// The size up to which a training step has the logits of a microbatch at once.
#pragma once

#include <cstdint>

namespace gantry {

// Larger logits are computed in tiles of at most this number of bytes.
inline constexpr std::int64_t kLogitLimit = std::int64_t{32} << 20;

}  // namespace gantry

// The size of the chunks of recurrent mixers. Independent of LibTorch.
#pragma once

#include <cstdint>

namespace gantry::nn {

inline constexpr std::int64_t kChunkTokens = 64;

}  // namespace gantry::nn

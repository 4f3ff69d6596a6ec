// The loops of a real-gated linear recurrent unit on the host. T is float, double, c10::BFloat16 or c10::Half, and A
// double for double, else float. Different channels and samples may run at the same time.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "gantry/tensors/kernels/rg_lru_element.h"

namespace gantry::kernels {

// Some channels that run together, at most kMostLruChannels. Many are faster, because their numbers are next to each
// other in memory, and those of the next token are not.
struct LruChannels {
  std::int64_t first, count;
};
inline constexpr std::int64_t kMostLruChannels = 1024;

// states: [samples, tokens, channels], after each token.
void lru_channels(const LruInputs<float, float>& of, float* states, std::int64_t sample, LruChannels channels);
void lru_channels(const LruInputs<double, double>& of, double* states, std::int64_t sample, LruChannels channels);
void lru_channels(const LruInputs<c10::BFloat16, float>& of, float* states, std::int64_t sample, LruChannels channels);
void lru_channels(const LruInputs<c10::Half, float>& of, float* states, std::int64_t sample, LruChannels channels);

void lru_channels_backward(const LruInputs<float, float>& of, const LruGradients<float>& to, std::int64_t sample,
                           LruChannels channels);
void lru_channels_backward(const LruInputs<double, double>& of, const LruGradients<double>& to, std::int64_t sample,
                           LruChannels channels);
void lru_channels_backward(const LruInputs<c10::BFloat16, float>& of, const LruGradients<float>& to,
                           std::int64_t sample, LruChannels channels);
void lru_channels_backward(const LruInputs<c10::Half, float>& of, const LruGradients<float>& to, std::int64_t sample,
                           LruChannels channels);

}  // namespace gantry::kernels

// The loops of scores by channels on the host. Independent of LibTorch.
#pragma once

#include "gantry/tensors/kernels/channel_scores_element.h"

namespace gantry::kernels {

// Different blocks may run at the same time.
void score_block(const ScoredTokens<float>& of, const ChannelScores<float>& to, std::int64_t block);
void score_block(const ScoredTokens<double>& of, const ChannelScores<double>& to, std::int64_t block);
void score_block_backward(const ScoredTokens<float>& of, const ScoredGradients<float>& to, std::int64_t block);
void score_block_backward(const ScoredTokens<double>& of, const ScoredGradients<double>& to, std::int64_t block);

}  // namespace gantry::kernels

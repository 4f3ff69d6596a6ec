// The heads of a recurrent layer that a rank computes. With context parallelism a recurrence needs the tokens of a
// sequence in order, so the ranks exchange tokens for heads before it and back after it. Without, every function
// returns its input.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gantry/nn/attention.h"
#include "gantry/nn/key_value_cache.h"
#include "gantry/nn/sequence_exchange.h"

namespace gantry::nn {

// Blocks of `size` features, each of which is read by `served` consecutive heads.
struct HeadBlocks {
  std::int64_t size = 1;
  std::int64_t served = 1;
};
using HeadBlockList = std::vector<HeadBlocks>;
inline constexpr HeadBlocks kOneOfEachHead = {};

// For one forward of a layer. The heads may be channels.
class HeadExchange {
 public:
  // `held`: the heads of this tensor-parallel rank, at least as many as cp has ranks. Each rank of cp computes a part
  // of them. In generation, all ranks of cp have the tokens after the prompt: they only select their heads, so a rank
  // has the states of its heads.
  HeadExchange(const TokenContext& tokens, const HeadRange& held);

  // The tokens that the recurrence gets: with context parallelism, those of the full sequence.
  const TokenContext& tokens() const { return tokens_; }
  const HeadRange& heads() const { return heads_; }

  // features[i]: [samples, tokens, local blocks of blocks[i]], of one dtype. Returns [samples, tokens(), blocks that
  // heads() read] for each. Collective over cp, like to_tokens().
  std::vector<torch::Tensor> to_heads(const std::vector<torch::Tensor>& features, const HeadBlockList& blocks) const;
  // [samples, tokens(), features of heads()] -> [samples, tokens, features of the held heads], `size` for each head.
  torch::Tensor to_tokens(const torch::Tensor& features, std::int64_t size) const;
  // The part of a parameter for heads(): its first dimension consists of these blocks in order. Undefined stays
  // undefined.
  torch::Tensor own(const torch::Tensor& parameter, const HeadBlockList& blocks) const;

 private:
  // The features of these blocks that the heads of a rank of cp read, by index among those of the held heads.
  std::vector<Range> features_of(int rank, const HeadBlockList& blocks) const;
  std::shared_ptr<const SequenceExchange> exchange_of(const HeadBlockList& blocks) const;

  std::shared_ptr<const SequencePart> part_;  // null: no context parallelism
  TokenContext tokens_;
  HeadRange held_, heads_;
  std::vector<Range> heads_of_rank_;  // by rank of cp, by index among the held heads
};

}  // namespace gantry::nn

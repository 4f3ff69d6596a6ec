#include "gantry/nn/key_value_cache.h"

#include <fmt/format.h>

#include <torch/torch.h>

#include "gantry/core/error.h"

namespace gantry::nn {
namespace {

constexpr std::int64_t kStep = 64;  // tokens

}  // namespace

void KeyValueCache::reserve(std::int64_t tokens, const torch::Tensor& like) {
  if (keys_.defined() && keys_.size(2) >= tokens) return;
  const std::int64_t capacity = (tokens + kStep - 1) / kStep * kStep;
  auto grown = [&](const torch::Tensor& held) {
    torch::Tensor whole = torch::empty({like.size(0), like.size(1), capacity, like.size(3)}, like.options());
    if (tokens_ > 0) whole.narrow(2, 0, tokens_).copy_(held.narrow(2, 0, tokens_));
    return whole;
  };
  keys_ = grown(keys_);
  values_ = grown(values_);
}

std::pair<torch::Tensor, torch::Tensor> KeyValueCache::append(const torch::Tensor& key, const torch::Tensor& value) {
  const torch::NoGradGuard no_grad;
  const std::int64_t added = key.size(2);
  reserve(tokens_ + added, key);
  keys_.narrow(2, tokens_, added).copy_(key);
  values_.narrow(2, tokens_, added).copy_(value);
  tokens_ += added;
  return {keys_.narrow(2, 0, tokens_), values_.narrow(2, 0, tokens_)};
}

void KeyValueCache::select(const torch::Tensor& samples) {
  if (!keys_.defined()) return;
  keys_ = keys_.index_select(0, samples);
  values_ = values_.index_select(0, samples);
}

torch::Tensor TokenContext::for_head(const torch::Tensor& hidden) const {
  if (!only_last) return hidden;
  if (positions.defined() && positions.size(1) != hidden.size(1))
    throw UsageError({"generate", fmt::format("a stage has {} of {} tokens", hidden.size(1), positions.size(1)),
                      "activations of all tokens",
                      "set use_cache to false for a model that is split with sequence_parallel"});
  return hidden.narrow(1, hidden.size(1) - 1, 1);
}

}  // namespace gantry::nn

#include "gantry/nn/key_value_cache.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

constexpr std::int64_t kStep = 64;  // tokens

}  // namespace

// The kept tokens are moved to the front of the same memory if that has space for twice as many. So a token
// is moved at most once on average. Otherwise they are moved to the front of new memory.
void KeyValueCache::make_room(const torch::Tensor& key, const torch::Tensor& value, std::int64_t window) {
  const std::int64_t added = key.size(2);
  if (end_ + added <= capacity()) return;
  const std::int64_t kept = end_ - first_, needed = kept + added;
  const bool fits = first_ > 0 && 2 * needed <= capacity();
  const std::int64_t wanted = first_ > 0 ? 2 * needed : needed;
  const std::int64_t expected = window > 0 ? std::min(expected_, 2 * window) : expected_;
  const std::int64_t capacity = wanted <= expected ? expected : (wanted + kStep - 1) / kStep * kStep;
  const auto moved = [&](const torch::Tensor& held, const torch::Tensor& like) {
    torch::Tensor full =
        fits ? held : torch::empty({like.size(0), like.size(1), capacity, like.size(3)}, like.options());
    if (kept > 0) full.narrow(2, 0, kept).copy_(held.narrow(2, first_, kept));  // 2 kept <= capacity
    return full;
  };
  keys_ = moved(keys_, key);
  values_ = moved(values_, value);
  first_ = 0;
  end_ = kept;
}

std::pair<torch::Tensor, torch::Tensor> KeyValueCache::append(const torch::Tensor& key, const torch::Tensor& value,
                                                              std::int64_t window) {
  const torch::NoGradGuard no_grad;
  const std::int64_t added = key.size(2);
  if (window > 0) first_ = std::max(first_, end_ - (window - 1));
  make_room(key, value, window);
  keys_.narrow(2, end_, added).copy_(key);
  values_.narrow(2, end_, added).copy_(value);
  end_ += added;
  tokens_ += added;
  return kept();
}

std::pair<torch::Tensor, torch::Tensor> KeyValueCache::kept() const {
  return {keys_.narrow(2, first_, end_ - first_), values_.narrow(2, first_, end_ - first_)};
}

void KeyValueCache::select(const torch::Tensor& samples) {
  if (!keys_.defined()) return;
  const torch::NoGradGuard no_grad;
  select(keys_, spare_keys_, samples);
  select(values_, spare_values_, samples);
}

void KeyValueCache::select(torch::Tensor& held, torch::Tensor& spare, const torch::Tensor& samples) const {
  auto shape = held.sizes().vec();
  shape[0] = samples.size(0);
  if (!spare.defined() || spare.sizes() != shape) spare = torch::empty(shape, held.options());
  torch::Tensor target = spare.narrow(2, first_, end_ - first_);
  at::index_select_out(target, held.narrow(2, first_, end_ - first_), 0, samples);
  std::swap(held, spare);
}

torch::Tensor LayerState::get(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? torch::Tensor() : found->second;
}

void LayerState::set(const std::string& name, const torch::Tensor& tensor) { tensors_[name] = tensor.detach(); }

void LayerState::select(const torch::Tensor& samples) {
  const torch::NoGradGuard no_grad;
  for (auto& [name, tensor] : tensors_) tensor = tensor.index_select(0, samples);
}

torch::Tensor TokenContext::for_head(const torch::Tensor& hidden) const {
  if (!only_last) return hidden;
  if (positions.defined() && positions.size(1) != hidden.size(1))
    throw UsageError({"generate",
                      fmt::format("a stage has the activations of {} of {} tokens", hidden.size(1), positions.size(1)),
                      "activations of all tokens", "set use_cache to false for a model with sequence_parallel"});
  return hidden.narrow(1, hidden.size(1) - 1, 1);
}

}  // namespace gantry::nn

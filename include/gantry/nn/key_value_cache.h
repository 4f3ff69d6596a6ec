// What attention keeps of tokens it has seen, so that a text can be continued without computing them again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// Keys and values of one layer, for the key heads that this rank holds. Not for training: nothing is differentiated
// through it.
class KeyValueCache {
 public:
  // Memory for `expected` tokens, or for two windows where that is less, is taken with the first of them, and never
  // again while the text is no longer. A longer one takes more in steps.
  explicit KeyValueCache(std::int64_t expected = 0) : expected_(expected) {}

  // Puts [samples, key heads, tokens, head size] behind what there is, and gives all that is in sight, as views that
  // hold until the next append or select. With a window, a token sees itself and the window - 1 tokens before it: of
  // what was there, only that many are kept, so the memory does not grow with the text.
  std::pair<torch::Tensor, torch::Tensor> append(const torch::Tensor& key, const torch::Tensor& value,
                                                 std::int64_t window = 0);
  // Sample i becomes what sample samples[i] was (int64 [any number]): beams that go on, and copies of one prompt. While
  // the number stays, two memories take turns.
  void select(const torch::Tensor& samples);
  std::int64_t tokens() const { return tokens_; }  // of the whole text so far, forgotten ones too
  std::int64_t capacity() const { return keys_.defined() ? keys_.size(2) : 0; }

 private:
  void make_room(const torch::Tensor& key, const torch::Tensor& value, std::int64_t window);
  void select(torch::Tensor& held, torch::Tensor& spare, const torch::Tensor& samples) const;

  std::int64_t expected_;
  torch::Tensor keys_, values_;              // [samples, key heads, capacity, head size]
  torch::Tensor spare_keys_, spare_values_;  // where select() puts what goes on
  std::int64_t first_ = 0;                   // the places of what is kept
  std::int64_t end_ = 0;
  std::int64_t tokens_ = 0;
};

// Those of a stream's layers.
class LayerCaches {
 public:
  explicit LayerCaches(std::int64_t expected = 0) : expected_(expected) {}
  // The layer's, made by the first call.
  KeyValueCache& of(int layer) { return caches_.try_emplace(layer, expected_).first->second; }
  // In every layer.
  void select(const torch::Tensor& samples) {
    for (auto& [layer, cache] : caches_) cache.select(samples);
  }

 private:
  std::int64_t expected_;
  std::map<int, KeyValueCache> caches_;
};

struct SequencePart;

// What the layers of a stage know of a stream of tokens beside their features.
struct TokenContext {
  torch::Tensor keep;             // bool [samples, tokens], cached ones first: which count; undefined: all
  torch::Tensor positions;        // int64 [samples, tokens]; undefined: 0, 1, 2, ... in each sample
  LayerCaches* caches = nullptr;  // of earlier tokens, which these ones join; not owned
  bool only_last = false;         // the head's output is wanted for the last token alone
  torch::Tensor documents = {};   // int [samples, tokens]: tokens see their own alone; undefined: one in each sample
  std::int64_t length = 0;        // of the whole sequence, where these tokens are a part of it; 0: they are all
  std::shared_ptr<const SequencePart> sequence = {};  // which part; null: all

  KeyValueCache* cache(int layer) const { return caches ? &caches->of(layer) : nullptr; }
  // The part of [samples, tokens, features] that the head is wanted for. UsageError where these are not all tokens but
  // a sequence shard.
  torch::Tensor for_head(const torch::Tensor& hidden) const;
};

}  // namespace gantry::nn

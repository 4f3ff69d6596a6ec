// Caches of the layers, so that generation does not compute earlier tokens again: keys and values of attention, and the
// states of recurrent layers, which do not grow with the text.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gantry/tensors/tensor.h"

namespace gantry::nn {

// Keys and values of one layer, for the KV heads that this rank holds. For inference only: there are no gradients.
class KeyValueCache {
 public:
  // The first append allocates memory for `expected` tokens, or for two windows if that is less. It does not allocate
  // again while the sequence is not longer. For longer sequences the memory grows in steps.
  explicit KeyValueCache(std::int64_t expected = 0) : expected_(expected) {}

  // Appends [samples, KV heads, tokens, head size] and returns all keys and values that are attended to, as views that
  // are valid until the next append() or select(). With a window, a token attends to itself and the window - 1 tokens
  // before it; only these are kept, so the memory is bounded.
  std::pair<torch::Tensor, torch::Tensor> append(const torch::Tensor& key, const torch::Tensor& value,
                                                 std::int64_t window = 0);
  // Returns the result of the last append().
  std::pair<torch::Tensor, torch::Tensor> kept() const;
  // Replaces sample i by sample samples[i] (int64 [any number]), for beam search and copies of a prompt. Two buffers
  // are used in turn while the number of samples is constant.
  void select(const torch::Tensor& samples);
  // Length of the sequence so far, including tokens that are no longer kept.
  std::int64_t tokens() const { return tokens_; }
  std::int64_t capacity() const { return keys_.defined() ? keys_.size(2) : 0; }

 private:
  void make_room(const torch::Tensor& key, const torch::Tensor& value, std::int64_t window);
  void select(torch::Tensor& held, torch::Tensor& spare, const torch::Tensor& samples) const;

  std::int64_t expected_;
  torch::Tensor keys_, values_;              // [samples, KV heads, capacity, head size]
  torch::Tensor spare_keys_, spare_values_;  // destination buffers of select()
  std::int64_t first_ = 0;                   // range of the kept tokens: [first_, end_)
  std::int64_t end_ = 0;
  std::int64_t tokens_ = 0;
};

// The state of one recurrent layer after the tokens so far, for the channels or heads that this rank holds: tensors by
// name, each [samples, ...], whose sizes do not depend on the number of tokens. For inference only.
class LayerState {
 public:
  // Undefined before the first set().
  torch::Tensor get(const std::string& name) const;
  void set(const std::string& name, const torch::Tensor& tensor);
  // Replaces sample i by sample samples[i], like KeyValueCache::select().
  void select(const torch::Tensor& samples);

 private:
  std::map<std::string, torch::Tensor> tensors_;
};

// The caches of the layers for one sequence of tokens.
class LayerCaches {
 public:
  explicit LayerCaches(std::int64_t expected = 0) : expected_(expected) {}
  // Returns the cache of a layer, which the first call creates.
  KeyValueCache& of(int layer) { return caches_.try_emplace(layer, expected_).first->second; }
  // The same for the state of a recurrent layer.
  LayerState& state_of(int layer) { return states_[layer]; }
  // Selects samples in every layer.
  void select(const torch::Tensor& samples) {
    for (auto& [layer, cache] : caches_) cache.select(samples);
    for (auto& [layer, state] : states_) state.select(samples);
  }

 private:
  std::int64_t expected_;
  std::map<int, KeyValueCache> caches_;
  std::map<int, LayerState> states_;
};

struct SequencePart;

// Information about tokens that a stage's layers need in addition to their features.
struct TokenContext {
  torch::Tensor keep;             // bool [samples, tokens], including cached ones: tokens that count; undefined: all
  torch::Tensor positions;        // int64 [samples, tokens]; undefined: 0, 1, 2, ... in each sample
  LayerCaches* caches = nullptr;  // caches of earlier tokens; not owned; null: no cache
  bool only_last = false;         // compute the head's output only for the last token
  // Int [samples, tokens]: tokens attend only to their own document; undefined: one document per sample.
  torch::Tensor documents = {};
  torch::Tensor images = {};  // see AttentionOptions::images
  std::int64_t length = 0;    // length of the full sequence if these tokens are a part of it; 0: they are all tokens
  std::shared_ptr<const SequencePart> sequence = {};  // the part of the sequence that these tokens are; null: all

  KeyValueCache* cache(int layer) const { return caches ? &caches->of(layer) : nullptr; }
  LayerState* state(int layer) const { return caches ? &caches->state_of(layer) : nullptr; }
  // Returns the part of [samples, tokens, features] for which the head is computed. Throws UsageError if only_last is
  // set and `hidden` is a sequence shard.
  torch::Tensor for_head(const torch::Tensor& hidden) const;
};

}  // namespace gantry::nn

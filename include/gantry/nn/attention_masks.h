// A cache of the attention masks of one forward, which all layers share.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "gantry/tensors/tensor.h"

namespace gantry::nn {

class AttentionMasks {
 public:
  enum class Kind {
    kCounted,   // bool, keys that a query attends to
    kAdditive,  // added to the scores
    kSeen,      // bool, keys that a query attends to by position
    kChunks     // int64, the number of each token's chunk; `window` is the size of a chunk
  };
  struct Wanted {
    Kind kind;
    torch::Tensor keep, documents;  // inputs of the mask; may be undefined
    bool causal;
    std::int64_t window, queries, keys;
    torch::ScalarType type;
    torch::Tensor images = {};  // a further input of the mask; may be undefined

    bool operator==(const Wanted& other) const;
  };
  // Returns the mask, computed by `make` on first use.
  torch::Tensor get(const Wanted& wanted, const std::function<torch::Tensor()>& make);
  // Releases the masks. A recomputation creates its own.
  void clear() { made_.clear(); }

 private:
  std::vector<std::pair<Wanted, torch::Tensor>> made_;
};

}  // namespace gantry::nn

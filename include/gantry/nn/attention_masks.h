// The masks of one forward, made once for all of its layers.
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
    kCounted,   // bool, of keys that count for a query
    kAdditive,  // added to the scores
    kSeen       // bool, of keys that a query sees by its place
  };
  struct Wanted {
    Kind kind;
    torch::Tensor keep, documents;  // that it is made from; may be undefined
    bool causal;
    std::int64_t window, queries, keys;
    torch::ScalarType type;

    bool operator==(const Wanted& other) const;
  };
  // The mask, by `make` where it is wanted for the first time.
  torch::Tensor get(const Wanted& wanted, const std::function<torch::Tensor()>& make);
  // Lets go of them: a recomputation makes its own.
  void clear() { made_.clear(); }

 private:
  std::vector<std::pair<Wanted, torch::Tensor>> made_;
};

}  // namespace gantry::nn

// LoRA adapters as values: a layer that was built without an adapter can use one after another.
#pragma once

#include <optional>
#include <string>

#include "gantry/core/placement.h"
#include "gantry/core/shard_style.h"
#include "gantry/tensors/tensor.h"

namespace gantry::nn {

struct AdapterOptions;  // nn/linear.h

// This rank's part of the factors of an adapter: its output is scale * B A input.
struct LayerAdapter {
  torch::Tensor a, b;       // undefined: no adapter
  torch::Tensor magnitude;  // undefined without DoRA
  double scale = 1;
};

// The names, full shapes and shards of these factors. The names are those that add_adapter() registers.
struct LayerAdapterPlaces {
  Placement a, b;
  std::optional<Placement> magnitude;  // no value without DoRA
};

// A layer of which adapters can be exchanged. `stack`: one of the stacks of an Experts; empty for other layers.
class Adaptable {
 public:
  virtual ~Adaptable() = default;
  // Returns how the factors of such an adapter are placed: call it after shard(), if the layer is sharded.
  virtual LayerAdapterPlaces adapter_places(const AdapterOptions& adapter, const std::string& stack) const = 0;
  // Replaces the adapter by another one, which is not a parameter: it is not trained, and has no dropout. Its tensors
  // are placed by adapter_places(), on the device of the weight. Requires a layer without add_adapter(). Ranks of a
  // group call it with the same adapter before they call forward() together.
  virtual void use_adapter(const LayerAdapter& adapter, const std::string& stack) = 0;
};

// Returns the placement of a factor with this full shape. `splits`: the splits by the names of factors.
Placement place_of_factor(const std::string& name, const Shape& shape, const Placements& splits);

}  // namespace gantry::nn

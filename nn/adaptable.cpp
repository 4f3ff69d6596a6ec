#include "gantry/nn/adaptable.h"

namespace gantry::nn {

Placement place_of_factor(const std::string& name, const Shape& shape, const Placements& splits) {
  Placement place{.name = name, .global_shape = shape, .shards = {}, .stages = {}, .aliases = {}};
  const auto split = splits.find(name);
  if (split == splits.end()) return place;
  place.shards = split->second.shards;
  place.view = split->second.view;
  return place;
}

}  // namespace gantry::nn

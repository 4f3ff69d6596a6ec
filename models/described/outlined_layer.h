// A layer of a program's own model as the planner sees it: its parameters and how the policy shards them. Matrices are
// products with every token. The layer's other work, such as attention scores or a recurrence, is not known.
#pragma once

#include <string>
#include <vector>

#include "gantry/models/described/mixers/mixer_kind.h"

namespace gantry::models {

struct OutlinedSizes {
  std::string first;                       // path of the first layer with these parameters, "blocks.0"
  std::vector<ParameterShape> parameters;  // with names relative to the layer
  std::vector<ModuleShard> shards;         // with paths relative to the layer
  bool shares_sequences = false;           // the policy supports context parallelism
  bool shards_sequences = false;           // the policy has rules for sequence parallelism
};
// Compares the names and shapes of parameters, and the rules.
bool operator==(const OutlinedSizes& one, const OutlinedSizes& other);

class OutlinedLayer final : public MixerOf<OutlinedSizes> {
 public:
  explicit OutlinedLayer(OutlinedSizes of) : MixerOf(std::move(of)) {}
  std::string name() const override { return "layers like " + sizes.first; }
  std::vector<ParameterShape> parameters(std::int64_t) const override { return sizes.parameters; }
  std::vector<ModuleShard> shards() const override { return sizes.shards; }
  std::int64_t largest_tensor() const override;
  std::int64_t largest_context(std::int64_t tensor) const override;
  bool shards_sequences() const override { return sizes.shards_sequences; }
  MixerWork work() const override;
};

}  // namespace gantry::models

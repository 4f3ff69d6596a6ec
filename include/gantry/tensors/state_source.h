// What checkpoints see of one rank's state, whoever holds it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gantry/core/placement.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// A tensor that this rank holds (its slice), and how it lies on the mesh.
struct HeldTensor {
  Placement placement;
  torch::Tensor tensor;
};

// A tensor of the job's state. `kind` is "model" or an optimizer's state name ("optimizer.exp_avg"); its placement is
// that of the parameter it belongs to. The tensor is live: loading writes into it.
struct StateEntry {
  std::string kind;
  HeldTensor held;
  std::string fallback;  // the kind to load where a checkpoint lacks this one (masters of a run without them), or empty
};

class StateSource {
 public:
  virtual ~StateSource() = default;
  // What was loaded into the entries counts once load_state_numbers() was called.
  virtual std::vector<StateEntry> state_entries() = 0;
  // The pipeline rank that writes a parameter: the one with its lowest stage.
  virtual int first_holder(const Placement& placement) const = 0;
  // Numbers that are the same on all ranks: step counts, learning-rate state.
  virtual nlohmann::json state_numbers() const = 0;
  virtual void load_state_numbers(const nlohmann::json& numbers) = 0;
};

}  // namespace gantry

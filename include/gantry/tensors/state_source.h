// The interface through which checkpoints access a rank's state.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gantry/core/placement.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// A tensor (slice) that this rank holds, and its placement on the mesh.
struct HeldTensor {
  Placement placement;
  torch::Tensor tensor;
};

// A tensor of the job's state. `kind`: "model", or a state of the optimizer ("optimizer.exp_avg"), which has the
// placement of its parameter. Loading writes directly to the tensor.
struct StateEntry {
  std::string kind;
  HeldTensor held;
  // The kind to load if a checkpoint lacks this one (for master weights of a run without them); empty: none.
  std::string fallback;
};

class StateSource {
 public:
  virtual ~StateSource() = default;
  // Returns the state. Values that are loaded into the entries take effect with load_state_numbers().
  virtual std::vector<StateEntry> state_entries() = 0;
  // Returns the pipeline rank that writes a parameter: the one with its lowest stage.
  virtual int first_holder(const Placement& placement) const = 0;
  // Numbers that are equal on all ranks: step counts, learning-rate state.
  virtual nlohmann::json state_numbers() const = 0;
  virtual void load_state_numbers(const nlohmann::json& numbers) = 0;
};

}  // namespace gantry

// The data of a training step that wait in host memory while nothing uses them.
#pragma once

namespace gantry::schedule {

struct Offload {
  bool state = false;        // optimizer state
  bool activations = false;  // activations that a forward saves for its backward

  bool any() const { return state || activations; }
};

}  // namespace gantry::schedule

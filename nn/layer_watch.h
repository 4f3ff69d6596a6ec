// Callbacks around each layer that run_layers runs: before and after its forward, and before and after its backward,
// a recomputation's forward within it. Parameters of layers are gathered and released there. `layer` counts over all
// lists. A backward tells on the thread that autograd runs it on; what it can't tell of, since the layer's input
// requires no gradient, ends with the stage's backward.
#pragma once

#include "gantry/tensors/tensor_dict.h"

namespace gantry {

class LayerWatch {
 public:
  virtual ~LayerWatch() = default;
  virtual void before_forward(int layer) = 0;
  virtual void after_forward(int layer) = 0;
  virtual void before_backward(int layer) = 0;
  virtual void after_backward(int layer) = 0;
  // True if it splits the graph between the parts of layers. It is then called after each part, or after a layer that
  // is recomputed whole, with the state there. What it gives takes the place of entries: the same numbers, of which the
  // graph knows nothing.
  virtual bool splits() const { return false; }
  virtual TensorDict after_part(const TensorDict& /*state*/) { return {}; }
};

}  // namespace gantry

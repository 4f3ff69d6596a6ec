// Who is told around each layer that run_layers runs: before and after its forward, and before and after its backward,
// a recomputation's forward within it. Parameters of layers are gathered and released there. `layer` counts over all
// lists. A backward tells on the thread that autograd runs it on; what it can't tell of, since the layer's input
// requires no gradient, ends with the stage's backward.
#pragma once

namespace gantry {

class LayerWatch {
 public:
  virtual ~LayerWatch() = default;
  virtual void before_forward(int layer) = 0;
  virtual void after_forward(int layer) = 0;
  virtual void before_backward(int layer) = 0;
  virtual void after_backward(int layer) = 0;
};

}  // namespace gantry

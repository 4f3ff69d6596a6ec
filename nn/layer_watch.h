// Callbacks around each layer that run_layers() runs: before and after its forward, and before and after its
// backward, which includes the forward of a recomputation. They gather and release the parameters of layers.
// `layer` counts over all lists. Callbacks of a backward come on the thread on which autograd runs it. If the
// input of a layer requires no gradient, there is no after_backward(): the backward of this layer ends with
// the backward of the stage.
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
  // True if the watch splits the graph between the parts of layers. after_part() is then called with the
  // state after each part, or after a layer that is recomputed as one piece. The tensors that it returns
  // replace entries of the state: they have the same values, but are not connected to the graph.
  virtual bool splits() const { return false; }
  virtual TensorDict after_part(const TensorDict& /*state*/) { return {}; }
};

}  // namespace gantry

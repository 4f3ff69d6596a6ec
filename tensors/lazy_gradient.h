// A gradient of a parameter whose memory is allocated and set to zero before the first addition.
#pragma once

#include <memory>
#include <string>

#include "gantry/tensors/tensor.h"

namespace gantry {

class LazyGradient {
 public:
  // Of the parameter's shape and device, and of that type. `error`: what a use throws before something was added.
  LazyGradient(torch::Tensor parameter, torch::ScalarType type, std::string error);

  void show();  // as the parameter's gradient
  void hide();  // the parameter has none then
  // The same tensor always; values() brings its memory.
  const torch::Tensor& gradient() const;
  const torch::Tensor& values();
  bool has_values() const;  // true if memory was allocated since clear()
  void clear();             // releases the memory, which resets the gradient to zero

 private:
  struct State;
  class Tag;

  torch::Tensor parameter_;
  std::shared_ptr<State> state_;

  friend void bring_lazy_gradient(const torch::Tensor& parameter);
};

// Allocates the memory of the parameter's gradient if that is a LazyGradient. Call it before any addition to
// `.grad` that autograd does not do.
void bring_lazy_gradient(const torch::Tensor& parameter);

}  // namespace gantry

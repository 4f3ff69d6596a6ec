// A parameter's gradient that takes memory, zero at first, when something is first added to it.
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
  bool has_values() const;  // memory was brought since clear()
  void clear();             // zero again, without memory

 private:
  struct State;
  class Tag;

  torch::Tensor parameter_;
  std::shared_ptr<State> state_;

  friend void bring_lazy_gradient(const torch::Tensor& parameter);
};

// For who adds into a parameter's `.grad` otherwise than by autograd: brings it, if it is lazy and shown.
void bring_lazy_gradient(const torch::Tensor& parameter);

}  // namespace gantry

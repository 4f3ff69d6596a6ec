// A gradient of a parameter whose memory is allocated and set to zero before the first addition.
#pragma once

#include <memory>
#include <string>

#include "gantry/tensors/tensor.h"

namespace gantry {

class LazyGradient {
 public:
  // The gradient has the shape and device of `parameter`, and the type `type`. `error`: the text of the
  // exception that a use of the gradient throws while it has no memory.
  LazyGradient(torch::Tensor parameter, torch::ScalarType type, std::string error);

  void show();  // sets it as the gradient of the parameter
  void hide();  // removes it; the parameter then has no gradient
  // Both return the same tensor. values() first allocates its memory if necessary.
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

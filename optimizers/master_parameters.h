// What the optimizer steps in place of the model's parameters where the two differ: float32 copies of bfloat16 and
// float16 parameters, and under ZeRO the range of each that this replica steps. One flat tensor for each held
// parameter, which takes its place in the optimizer's groups; empty where another replica owns it all. Any optimizer
// that treats elements alike works on them unchanged.
#pragma once

#include <vector>

#include <torch/optim/optimizer.h>

#include "gantry/optimizers/gradient_buffers.h"

namespace gantry {

class MasterParameters {
 public:
  // Replaces the parameters in the optimizer's groups. Neither is owned.
  MasterParameters(torch::optim::Optimizer& optimizer, GradientBuffers& gradients);

  // True if a model's parameters need masters.
  static bool needed(const std::vector<HeldTensor>& parameters, bool partitions);

  // Makes masters of parameters that were brought in since.
  void bring_in();
  // Gives the masters their gradients; before the first step low-precision parameters are copied, so that weights may
  // be loaded after boosting.
  void before_step();
  // Brings the stepped values to the parameters and, under ZeRO, sends them to the other replicas.
  void after_step();

  const torch::Tensor& master(std::size_t parameter) const { return masters_[parameter]; }
  bool is_copy(std::size_t parameter) const { return copies_[parameter]; }  // float32 of a lower precision
  // The masters hold loaded values from here on.
  void loaded() { fresh_ = false; }
  // The parameters were given new values: the masters take them before the next step.
  void refresh() { fresh_ = true; }
  // Makes masters that no step has filled yet what they will be.
  void fill() {
    if (fresh_) copy_from_parameters();
  }

 private:
  void copy_from_parameters();

  torch::optim::Optimizer& optimizer_;
  GradientBuffers& gradients_;
  std::vector<torch::Tensor> masters_;  // a parameter that never required a gradient stands for itself
  std::vector<bool> made_, copies_;
  bool fresh_ = true;  // no step was taken and nothing loaded
};

}  // namespace gantry

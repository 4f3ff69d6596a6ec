// Tensors that the optimizer steps in place of the model's parameters, if the two differ. These are float32
// copies of bfloat16 and float16 parameters and, under ZeRO, the range of each parameter that this replica
// steps. For an optimizer that needs full rows or matrices of sharded parameters, they are full tensors on
// one rank (GatheredUnits).
//
// Each held parameter has one such master, which replaces it in the optimizer's groups. It is empty if
// another rank steps all of the parameter. It is flat if the optimizer treats elements independently, so that
// any such optimizer works on it unchanged. Otherwise it has the local shape of its placement.
#pragma once

#include <optional>
#include <vector>

#include <torch/optim/optimizer.h>

#include "gantry/optimizers/gathered_units.h"
#include "gantry/optimizers/gradient_buffers.h"

namespace gantry {

class MasterParameters {
 public:
  // Replaces the parameters in the optimizer's groups. Owns neither argument. Collective over the axes that
  // shard parameters that the optimizer needs in full.
  MasterParameters(torch::optim::Optimizer& optimizer, GradientBuffers& gradients, const ProcessGroupMesh& mesh);

  // True if this optimizer needs masters to step the parameters of a model.
  static bool needed(const torch::optim::Optimizer& optimizer, const std::vector<HeldTensor>& parameters,
                     bool partitions);

  // The next three functions are collective like the constructor.
  // Makes masters of parameters that were added since.
  void add_parameters();
  // Copies the parameters to masters that do not have their values yet: before the first step, so that weights may
  // be loaded after boosting, and after loaded() and refresh().
  void update();
  // update(), and sets the gradients of the masters.
  void before_step();
  // Writes the stepped values to the parameters that have memory and, under ZeRO, sends them to the other
  // replicas.
  void after_step();

  const torch::Tensor& master(std::size_t parameter) const { return masters_[parameter]; }
  // Placement of the master and of its optimizer state.
  Placement placement(std::size_t parameter) const;
  bool is_copy(std::size_t parameter) const { return is_low_[parameter]; }  // a float32 copy
  // True if this rank's values of the parameter are the rounded master. write_values() writes them.
  bool has_values(std::size_t parameter) const {
    return made_[parameter] && is_low_[parameter] && !is_full(parameter) && stale_ != Stale::kUnsharded;
  }
  void write_values(std::size_t parameter, torch::Tensor& values) const;
  // Call it after masters were loaded. Float32 masters then keep their values. Full tensors in the
  // parameters' own precision are gathered from the parameters before the next step.
  void loaded();
  // Call it after the parameters were given new values: the masters copy them before the next step.
  void refresh();
  // Fills the masters that are copies, if no step has filled them yet. Collective like the constructor.
  void fill();

 private:
  // The masters to fill before a step: full tensors in the parameters' own precision, or all that are copies.
  enum class Stale { kNone, kUnsharded, kCopies };

  void make_masters(const std::vector<std::size_t>& parameters);
  bool is_full(std::size_t parameter) const { return unit_numbers_[parameter].has_value(); }
  GatheredUnits::Move move(std::size_t parameter, torch::Tensor part, torch::Tensor full) const;
  void copy_from_parameters();

  torch::optim::Optimizer& optimizer_;
  GradientBuffers& gradients_;
  Coordinates coordinates_;
  GatheredUnits units_;
  std::vector<torch::Tensor> masters_;  // an untrained parameter is its own entry
  std::vector<bool> made_, is_low_;
  std::vector<std::optional<std::size_t>> unit_numbers_;  // by parameter: its number in units_
  Stale stale_ = Stale::kCopies;
};

}  // namespace gantry

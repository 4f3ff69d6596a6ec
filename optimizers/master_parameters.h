// What the optimizer steps in place of the model's parameters where the two differ: float32 copies of bfloat16 and
// float16 parameters; under ZeRO the range of each that this replica steps; and where an optimizer must see rows or
// matrices that ranks hold parts of, the whole on one of them (GatheredUnits). One tensor for each held parameter,
// which takes its place in the optimizer's groups; empty where another rank steps it all. It is flat where the
// optimizer treats elements alike, so that any such optimizer works on it unchanged, and else of the shape that its
// placement leaves.
#pragma once

#include <optional>
#include <vector>

#include <torch/optim/optimizer.h>

#include "gantry/optimizers/gathered_units.h"
#include "gantry/optimizers/gradient_buffers.h"

namespace gantry {

class MasterParameters {
 public:
  // Replaces the parameters in the optimizer's groups. Nothing is owned. Collective over the axes that shard what the
  // optimizer must see whole.
  MasterParameters(torch::optim::Optimizer& optimizer, GradientBuffers& gradients, const ProcessGroupMesh& mesh);

  // True if a model's parameters need masters to be stepped by this optimizer.
  static bool needed(const torch::optim::Optimizer& optimizer, const std::vector<HeldTensor>& parameters,
                     bool partitions);

  // These three are collective as the constructor is.
  // Makes masters of parameters that were brought in since.
  void add_parameters();
  // Gives the masters their gradients; before the first step masters that are copies are filled, so that weights may be
  // loaded after boosting.
  void before_step();
  // Brings the stepped values to the parameters that have memory and, under ZeRO, sends them to the other replicas.
  void after_step();

  const torch::Tensor& master(std::size_t parameter) const { return masters_[parameter]; }
  // How the master lies on the mesh, and the optimizer's state with it.
  Placement placement(std::size_t parameter) const;
  bool is_copy(std::size_t parameter) const { return is_low_[parameter]; }  // float32 of a lower precision
  // A copy of what this rank holds of the parameter, whose values are the master's, rounded.
  bool has_values(std::size_t parameter) const {
    return made_[parameter] && is_low_[parameter] && !is_full(parameter) && stale_ != Stale::kUnsharded;
  }
  void write_values(std::size_t parameter, torch::Tensor& values) const;
  // Masters of lower precisions hold loaded values from here on; wholes take the parameters' before the next step.
  void loaded();
  // The parameters were given new values: the masters take them before the next step.
  void refresh();
  // Makes masters of lower precisions that no step has filled yet what they will be. Collective as the constructor is.
  void fill();

 private:
  // What has to be filled before a step: masters of lower precisions, or all that are copies.
  enum class Stale { kNone, kUnsharded, kCopies };

  void make_masters(const std::vector<std::size_t>& parameters);
  bool is_full(std::size_t parameter) const { return unit_numbers_[parameter].has_value(); }
  GatheredUnits::Move move(std::size_t parameter, torch::Tensor part, torch::Tensor full) const;
  void copy_from_parameters();

  torch::optim::Optimizer& optimizer_;
  GradientBuffers& gradients_;
  Coordinates coordinates_;
  GatheredUnits units_;
  std::vector<torch::Tensor> masters_;  // a parameter that never required a gradient stands for itself
  std::vector<bool> made_, is_low_;
  std::vector<std::optional<std::size_t>> unit_numbers_;  // by parameter: its number in units_
  Stale stale_ = Stale::kCopies;
};

}  // namespace gantry

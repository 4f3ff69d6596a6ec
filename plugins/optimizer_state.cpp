#include "gantry/plugins/optimizer_state.h"

#include <nlohmann/json.hpp>

#include "gantry/checkpoint/quantized_load.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/optimizers/loss_scaler.h"
#include "gantry/optimizers/master_parameters.h"
#include "gantry/optimizers/optimizer_tensors.h"
#include "gantry/optimizers/weight_average.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

namespace {

// Skipped steps count for dropout and the data, but Adam's bias correction counts only steps that were taken.
constexpr const char* kTakenSteps = "optimizer_steps_taken";

// The placement of a state tensor that lacks a dimension of its parameter: the last one, or the second to last one. One
// rank holds a matrix in full, so shards over several ranks are along earlier dimensions, or give it to that rank.
Placement without_dim(Placement placement, int missing) {
  Shape& shape = placement.global_shape;
  std::erase_if(placement.shards, [](const ShardSpec& shard) { return shard.ranks() == 1; });
  if (shape.size() == 2 && missing == -2)
    for (ShardSpec& shard : placement.shards)
      for (Segment& segment : shard.segments) {
        segment.extent = {0, shape[1]};
        for (Range& range : segment.range_of_rank) range.end = range.size() > 0 ? shape[1] : 0;
      }
  shape.erase(shape.end() + missing);
  return placement;
}

}  // namespace

// The state of a parameter that is sharded over replicas belongs to the full parameter.
bool OptimizerState::is_part_of_state(std::size_t parameter) const {
  if (!trained_alone_) return true;
  const auto& known = optimizer_ ? optimizer_->gradients().parameters() : model_.stage_module().parameters;
  return known[parameter].tensor.requires_grad();
}

std::vector<StateEntry> OptimizerState::state_entries() {
  std::vector<StateEntry> entries;
  if (optimizer_) optimizer_->require_weights();
  if (optimizer_) optimizer_->wait();
  const auto& parameters = model_.stage_module().parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (is_part_of_state(i)) {
      refuse_records(parameters[i]);
      entries.push_back({"model", parameters[i], ""});
    }
  if (!optimizer_) return entries;
  auto* masters = optimizer_->masters();
  if (masters) masters->fill();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!optimizer_->gradients().trained(i)) continue;
    const Placement placement = masters ? masters->placement(i) : parameters[i].placement;
    const auto held = [&](const Placement& place, const torch::Tensor& tensor) {
      // Masters may be flat: view the same memory in the local shape of the placement.
      return HeldTensor{place, masters ? tensor.detach().view(place.local_shape(mesh_.coordinates())) : tensor};
    };
    if (WeightAverage* average = optimizer_->average())
      entries.push_back({"optimizer.average", held(placement, average->of(optimizer_->stepped(i))), "model"});
    if (masters && masters->is_copy(i))
      entries.push_back({"optimizer.master", held(placement, masters->master(i)), "model"});
    for (const auto& [name, tensor] : optimizer_tensors(optimizer_->inner(), optimizer_->stepped(i))) {
      const auto missing = missing_dim(optimizer_->inner(), name);
      entries.push_back(
          {"optimizer." + name, held(missing ? without_dim(placement, *missing) : placement, tensor), ""});
    }
  }
  return entries;
}

nlohmann::json OptimizerState::state_numbers() const {
  if (!optimizer_) return {{"optimizer_steps", 0}};
  nlohmann::json numbers = {{"optimizer_steps", optimizer_->steps()}, {kTakenSteps, optimizer_->taken_steps()}};
  if (const auto* scaler = optimizer_->loss_scaler()) {
    const auto& state = scaler->state();
    numbers["loss_scale"] = {{"scale", state.scale}, {"good_steps", state.good_steps}, {"overflows", state.overflows}};
  }
  return numbers;
}

void OptimizerState::load_state_numbers(const nlohmann::json& numbers) {
  if (!optimizer_) return;
  const auto steps = numbers.at("optimizer_steps").get<std::int64_t>();
  // Checkpoints of earlier versions have only one count.
  const auto taken = numbers.contains(kTakenSteps) ? numbers.at(kTakenSteps).get<std::int64_t>() : steps;
  optimizer_->set_steps(steps, taken);
  if (auto* scaler = optimizer_->loss_scaler(); scaler && numbers.contains("loss_scale")) {
    const auto& state = numbers["loss_scale"];
    scaler->set_state({state.at("scale"), state.at("good_steps"), state.at("overflows")});
  }
  if (auto* masters = optimizer_->masters()) masters->loaded();
  const auto& parameters = model_.stage_module().parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (optimizer_->gradients().trained(i)) set_optimizer_steps(optimizer_->inner(), optimizer_->stepped(i), taken);
}

}  // namespace gantry

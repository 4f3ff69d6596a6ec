#include "gantry/plugins/fully_sharded_state.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "gantry/core/error.h"
#include "gantry/optimizers/optimizer_tensors.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// Key for the parameters with fewer steps than others, because no rank had used them.
constexpr const char* kStepsOfParameters = "steps_of_parameters";

}  // namespace

FullyShardedState::FullyShardedState(FullySharded sharded, const ProcessGroupMesh& mesh,
                                     const FullyShardedStateOptions& options)
    : sharded_(std::move(sharded)),
      mesh_(mesh),
      options_(options),
      parameters_(sharded_.parameters()),
      placements_(sharded_.placements(mesh, options.sharded)) {}

void FullyShardedState::for_stepped(const std::function<void(const torch::Tensor&, std::size_t)>& take) const {
  if (!options_.optimizer) return;
  std::set<const void*> stepped;
  for (const auto& group : options_.optimizer->param_groups())
    for (const auto& parameter : group.params()) stepped.insert(parameter.unsafeGetTensorImpl());
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].requires_grad() && stepped.contains(parameters_[i].unsafeGetTensorImpl()))
      take(parameters_[i], i);
}

// The same memory in the local shape of the placement.
HeldTensor FullyShardedState::placed(const torch::Tensor& tensor, std::size_t parameter) const {
  const Placement& placement = placements_[parameter];
  return {placement, tensor.detach().view(placement.local_shape(mesh_.coordinates()))};
}

std::vector<StateEntry> FullyShardedState::state_entries() {
  std::vector<StateEntry> entries;
  for (std::size_t i = 0; i < parameters_.size(); ++i) entries.push_back({"model", placed(parameters_[i], i), ""});
  for_stepped([&](const torch::Tensor& parameter, std::size_t i) {
    for (const auto& [name, tensor] : optimizer_tensors(*options_.optimizer, parameter)) {
      if (missing_dim(*options_.optimizer, name))
        throw UsageError({"FullyShardedState", "the optimizer's state " + name + " belongs to full matrices",
                          "an optimizer that updates single elements or rows",
                          "use booster.boost() with parallel.zero 3, which gives the optimizer full matrices"});
      entries.push_back({"optimizer." + name, placed(tensor, i), ""});
    }
  });
  return entries;
}

nlohmann::json FullyShardedState::state_numbers() const {
  std::map<std::string, std::int64_t> counted;
  for_stepped([&](const torch::Tensor& parameter, std::size_t i) {
    if (const auto steps = optimizer_steps(*options_.optimizer, parameter)) counted[placements_[i].name] = *steps;
  });
  if (options_.optimizer && counted.empty() && !options_.steps)
    throw UsageError({"FullyShardedState", "the optimizer does not count its steps", "the number of steps",
                      "set FullyShardedStateOptions::steps"});
  std::int64_t taken = counted.empty() ? options_.steps.value_or(0) : 0;
  for (const auto& [name, steps] : counted) taken = std::max(taken, steps);
  nlohmann::json numbers = {{"optimizer_steps", options_.steps.value_or(taken)}, {"optimizer_steps_taken", taken}};
  for (const auto& [name, steps] : counted)
    if (steps != taken) numbers[kStepsOfParameters][name] = steps;
  return numbers;
}

void FullyShardedState::load_state_numbers(const nlohmann::json& numbers) {
  const auto steps = numbers.at("optimizer_steps").get<std::int64_t>();
  const auto taken = numbers.value("optimizer_steps_taken", steps);
  const auto fewer = numbers.value(kStepsOfParameters, nlohmann::json::object());
  for_stepped([&](const torch::Tensor& parameter, std::size_t i) {
    set_optimizer_steps(*options_.optimizer, parameter, fewer.value(placements_[i].name, taken));
  });
  // Files are read into memory by pointer, so the versions have to be increased here. This is done on all
  // ranks, including those without rows.
  for (const auto& parameter : parameters_) parameter.unsafeGetTensorImpl()->bump_version();
}

}  // namespace gantry

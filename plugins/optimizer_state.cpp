#include "gantry/plugins/optimizer_state.h"

namespace gantry {
namespace {

torch::optim::AdamWParamState& adamw_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  auto& entry = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!entry) {
    auto fresh = std::make_unique<torch::optim::AdamWParamState>();
    fresh->step(0);
    fresh->exp_avg(torch::zeros_like(parameter));
    fresh->exp_avg_sq(torch::zeros_like(parameter));
    entry = std::move(fresh);
  }
  return static_cast<torch::optim::AdamWParamState&>(*entry);
}

void require_adamw(torch::optim::Optimizer& optimizer) {
  if (!dynamic_cast<torch::optim::AdamW*>(&optimizer)) {
    throw UsageError({"checkpoint", "the optimizer is not an AdamW, so its state can't be saved", "",
                      "use gantry::FusedAdamW or torch::optim::AdamW"});
  }
}

}  // namespace

std::vector<StateEntry> OptimizerState::state_entries() {
  std::vector<StateEntry> entries;
  for (const auto& parameter : model_.stage_module().parameters) entries.push_back({"model", parameter});
  if (!optimizer_) return entries;
  auto& optimizer = optimizer_->inner();
  require_adamw(optimizer);
  for (const auto& [placement, tensor] : model_.stage_module().parameters) {
    auto& state = adamw_state(optimizer, tensor);
    entries.push_back({"optimizer.exp_avg", {placement, state.exp_avg()}});
    entries.push_back({"optimizer.exp_avg_sq", {placement, state.exp_avg_sq()}});
  }
  return entries;
}

nlohmann::json OptimizerState::state_numbers() const {
  return {{"optimizer_steps", optimizer_ ? optimizer_->steps() : 0}};
}

void OptimizerState::load_state_numbers(const nlohmann::json& numbers) {
  if (!optimizer_) return;
  const auto steps = numbers.at("optimizer_steps").get<std::int64_t>();
  optimizer_->set_steps(steps);
  require_adamw(optimizer_->inner());
  for (const auto& parameter : model_.stage_module().parameters)
    adamw_state(optimizer_->inner(), parameter.tensor).step(steps);
}

}  // namespace gantry

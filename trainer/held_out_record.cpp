#include "gantry/trainer/held_out_record.h"

#include <nlohmann/json.hpp>

#include "gantry/core/io/strict_json.h"

namespace gantry {

void HeldOutRecord::note(std::int64_t step, double loss) {
  if (step <= last_step_) return;
  last_step_ = step;
  if (loss < best_loss_) {
    best_loss_ = loss;
    best_step_ = step;
    since_best_ = 0;
  } else {
    ++since_best_;
  }
}

nlohmann::json HeldOutRecord::state() const {
  if (last_step_ < 0) return nullptr;
  nlohmann::json state = {{"last_step", last_step_}, {"since_best", since_best_}};
  if (best_step_) {
    state["best_step"] = *best_step_;
    state["best_loss"] = best_loss_;
  }
  return state;
}

void HeldOutRecord::restore(const nlohmann::json& state) {
  *this = {};
  if (!state.is_object()) return;
  const auto number = [&](const char* key) { return state.contains(key) ? count_in(state[key]) : std::nullopt; };
  last_step_ = number("last_step").value_or(-1);
  since_best_ = number("since_best").value_or(0);
  if (!number("best_step") || !state.contains("best_loss") || !state["best_loss"].is_number()) return;
  best_step_ = number("best_step");
  best_loss_ = state["best_loss"];
}

}  // namespace gantry

#include "gantry/core/schedule_choice.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>

#include "gantry/core/pipeline_stage_manager.h"

namespace gantry {
namespace {

// The first of the keys that is a positive number; else `otherwise`.
double size_in(const nlohmann::json& keys, std::initializer_list<const char*> names, double otherwise) {
  for (const char* name : names)
    if (const auto found = keys.find(name); found != keys.end() && found->is_number() && found->get<double>() > 0)
      return found->get<double>();
  return otherwise;
}

}  // namespace

int microbatch_count(const ScheduleConfig& schedule, int stages, std::int64_t replica_samples) {
  std::int64_t count = stages > 1 ? 2 * static_cast<std::int64_t>(stages) : 1;
  if (schedule.microbatches) count = *schedule.microbatches;
  if (schedule.microbatch_size) count = (replica_samples + *schedule.microbatch_size - 1) / *schedule.microbatch_size;
  return static_cast<int>(std::clamp<std::int64_t>(count, 0, replica_samples));
}

int layers_in(const nlohmann::json& model_keys) {
  if (!model_keys.is_object()) return 0;
  for (const char* name : {"n_layer", "num_hidden_layers"}) {
    const auto found = model_keys.find(name);
    if (found == model_keys.end() || !found->is_number_integer()) continue;
    const auto layers = found->get<long long>();
    if (layers > 0 && layers <= std::numeric_limits<int>::max()) return static_cast<int>(layers);
  }
  return 0;
}

EndCosts estimate_end_costs(double head_weights, double layer_weights) {
  if (!(head_weights > 0) || !(layer_weights > 0)) return {};
  return {.embedding = EndCosts{}.embedding, .head = head_weights / layer_weights};
}

EndCosts end_costs_in(const nlohmann::json& model_keys) {
  if (!model_keys.is_object()) return {};
  const double hidden = size_in(model_keys, {"n_embd", "hidden_size"}, 0);
  const double heads = size_in(model_keys, {"n_head", "num_attention_heads"}, 1);
  const double key_heads = size_in(model_keys, {"num_key_value_heads"}, heads);
  const double head_size = size_in(model_keys, {"head_dim"}, hidden / heads);
  const double inner = size_in(model_keys, {"n_inner", "intermediate_size"}, 4 * hidden);
  const bool gated = model_keys.contains("rms_norm_eps");  // Llama's family has a third matrix there
  const double attention = hidden * head_size * (2 * heads + 2 * key_heads);
  return estimate_end_costs(hidden * size_in(model_keys, {"vocab_size"}, 0),
                            attention + (gated ? 3 : 2) * hidden * inner);
}

std::vector<int> layers_per_stage(const ScheduleConfig& schedule, int layers, int stages, const EndCosts& costs) {
  if (const auto* list = std::get_if<std::vector<int>>(&schedule.layers)) return *list;
  const auto& name = std::get<std::string>(schedule.layers);
  if (name == "default") return distribute_layers(layers, stages);
  if (name == "balanced") return distribute_layers_balanced(layers, stages, costs.embedding, costs.head);
  return parse_layout_string(name);
}

}  // namespace gantry

#include "gantry/planner/frozen_costs.h"

#include <algorithm>

#include "gantry/models/described/decoder_spec.h"
#include "gantry/planner/operations.h"

namespace gantry::planner {
namespace {

double share_of_trained(const HeldParameters& held) {
  const double all = held.dense + held.experts;
  return all > 0 ? (held.trained_dense + held.trained_experts) / all : 0;
}

std::string prefix_of_layer(const models::DecoderSpec& model, std::size_t index) {
  return model.names.layers + "." + std::to_string(index) + ".";
}

// What an adapter's second factor reads, of every token, or of every one of a token's experts.
double kept_by_adapters(const Workload& workload, const Layout& layout, std::size_t index) {
  const models::DecoderSpec& model = workload.model;
  const std::string prefix = prefix_of_layer(model, index);
  const double tokens = static_cast<double>(workload.sequence) * layout.microbatch / layout.context;
  double numbers = 0;
  for (auto each = workload.trained.adapters.lower_bound(prefix);
       each != workload.trained.adapters.end() && each->first.starts_with(prefix); ++each) {
    const bool is_stack = each->first.starts_with(prefix + model.names.experts + ".");
    const std::int64_t times = is_stack ? model.layers[index].experts->used : 1;
    numbers += tokens * static_cast<double>(each->second * times);
  }
  return numbers * value_bytes(workload.precision);
}

// An RMS norm keeps its normalised input, in float32 where it is narrower, for the gradient of its weight alone.
double kept_for_norms(const Workload& workload, const Layout& layout, const std::string& prefix) {
  const double tokens = static_cast<double>(workload.sequence) * layout.microbatch / layout.context /
                        (layout.sequence_parallel ? layout.tensor : 1);
  double numbers = 0;
  for (auto each = workload.trained.frozen.lower_bound(prefix);
       each != workload.trained.frozen.end() && each->starts_with(prefix); ++each)
    if (each->ends_with("norm.weight")) numbers += tokens * static_cast<double>(workload.model.hidden);
  return numbers * std::max(4.0, value_bytes(workload.precision));
}

bool has_adapters_of_experts_alone(const Workload& workload, const std::string& prefix) {
  const auto& adapters = workload.trained.adapters;
  const auto begin = adapters.lower_bound(prefix);
  const auto end =
      std::find_if_not(begin, adapters.end(), [&](const auto& adapter) { return adapter.first.starts_with(prefix); });
  const std::string experts = prefix + workload.model.names.experts + ".";
  return begin != end && std::all_of(begin, end, [&](const auto& one) { return one.first.starts_with(experts); });
}

// By layer: whether adapters of its experts are all that it trains.
std::vector<bool> train_experts_alone(const Workload& workload) {
  std::vector<bool> alone;
  for (std::size_t index = 0; index < workload.model.layers.size(); ++index)
    alone.push_back(has_adapters_of_experts_alone(workload, prefix_of_layer(workload.model, index)));
  if (std::ranges::find(alone, true) == alone.end()) return alone;
  for (const auto& parameter : models::parameter_shapes(workload.model)) {
    if (!workload.trained.trains(parameter.name)) continue;
    for (std::size_t index = 0; index < alone.size(); ++index)
      if (parameter.name.starts_with(prefix_of_layer(workload.model, index))) alone[index] = false;
  }
  return alone;
}

// Of what a frozen attention keeps otherwise: its products' input, for their weights' gradients; and all of it but the
// norm's, which is left out by itself, where nothing goes back through it.
double kept_for_attention(const PartCosts& layer, double kept_for_norm, bool goes_back) {
  return goes_back ? layer.kept_whole : layer.kept_attention - kept_for_norm;
}

}  // namespace

void leave_out_frozen(CostTable& table, const Workload& workload, const Layout& layout) {
  const ModelParameters& parameters = table.parameters;
  const auto trains = [](const HeldParameters& held) { return held.trained_dense + held.trained_experts > 0; };
  bool is_before = true;
  const auto leave_out = [&](PartCosts& part, const HeldParameters& held) {
    is_before = is_before && !trains(held);
    part.weight_gradient = part.weight_gradient.times(share_of_trained(held));
    if (is_before) part = {.forward = part.forward, .input_gradient = {}, .weight_gradient = {}, .core = {}};
  };
  const bool is_rms = workload.model.norm.kind == models::NormSpec::Kind::kRms;
  const std::vector<bool> experts_alone = train_experts_alone(workload);
  leave_out(table.embedding, parameters.first);
  for (std::size_t index = 0; index < table.layers.size(); ++index) {
    table.layers[index].kept += kept_by_adapters(workload, layout, index);
    const std::string prefix = prefix_of_layer(workload.model, index);
    if (is_rms) table.layers[index].kept -= kept_for_norms(workload, layout, prefix);
    if (experts_alone[index]) {
      PartCosts& layer = table.layers[index];
      const double norms = kept_for_norms(workload, layout, prefix);
      layer.kept -= kept_for_attention(layer, is_rms ? norms / 2 : 0, /*goes_back=*/!is_before);
    }
    leave_out(table.layers[index], parameters.layers[index]);
  }
  if (is_rms) table.head.kept -= kept_for_norms(workload, layout, workload.model.names.norm + ".");
  leave_out(table.head, parameters.last);
}

}  // namespace gantry::planner

// Costs of layers, embedding and head from their operations.
#include <algorithm>
#include <string>
#include <variant>

#include "gantry/core/base/wildcard.h"
#include "gantry/core/slice.h"
#include "gantry/models/described/decoder_shards.h"
#include "gantry/models/described/vision_modules.h"
#include "gantry/planner/collectives.h"
#include "gantry/planner/costs.h"
#include "gantry/planner/operations.h"
#include "gantry/planner/tower.h"

namespace gantry::planner {
namespace {

using Kind = Operation::Kind;

// Times of operations by the rates of a cluster.
class Pricing {
 public:
  Pricing(const Workload& workload, const Layout& layout, const Cluster& cluster)
      : layout_(layout), cluster_(cluster), peak_(cluster.device.matrix_flops.at(workload.precision)) {}

  Seconds of(const std::vector<Operation>& operations) const {
    Seconds seconds;
    for (const Operation& operation : operations) add(operation, seconds);
    return seconds;
  }
  // Ranks with a collective inside the part wait for the slowest rank since the previous collective. In a backward, the
  // weight gradients are computed between two collectives as well.
  void add_waiting(PartCosts& part) const {
    const double tensor = part.forward.tensor + part.input_gradient.tensor,
                 context = part.forward.context + part.input_gradient.context;
    for (Seconds* seconds : {&part.forward, &part.input_gradient, &part.weight_gradient, &part.core}) {
      const double waited = (cluster_.meeting_slowdown - 1) * seconds->compute;
      if (tensor > 0)
        seconds->tensor += waited;
      else if (context > 0)
        seconds->context += waited;
    }
  }

 private:
  double core(double flops) const { return flops / (peak_ * cluster_.device.attention_efficiency); }
  double moved(double bytes, const std::string& by = "") const {
    const Device& device = cluster_.device;
    const auto own = device.operation_efficiency.find(by);
    const double share = own == device.operation_efficiency.end() ? device.memory_efficiency : own->second;
    return bytes / (device.memory_bytes_per_second * share);
  }
  double at_least_launch(double seconds) const { return std::max(seconds, cluster_.device.operation_seconds); }

  void add(const Operation& operation, Seconds& seconds) const {
    const Device& device = cluster_.device;
    switch (operation.kind) {
      case Kind::kProduct: {
        const double computed = (operation.flops + device.matrix_half_flops) / (peak_ * device.matrix_efficiency);
        seconds.compute += at_least_launch(std::max(computed, moved(operation.bytes)));
        break;
      }
      case Kind::kCore:
        seconds.compute += at_least_launch(std::max(core(operation.flops), moved(operation.bytes)));
        break;
      case Kind::kElementwise:
        seconds.compute += at_least_launch(moved(operation.bytes, operation.name));
        break;
      case Kind::kReduce:
        seconds.tensor += at_least_launch(all_reduce(tensor_group(layout_), operation.bytes, cluster_));
        break;
      case Kind::kHalfReduce:
        seconds.tensor += at_least_launch(half_reduce(tensor_group(layout_), operation.bytes, cluster_));
        break;
      case Kind::kPass: {  // overlaps with the core and slows it down
        const double passing = message({2, context_group(layout_).stride}, operation.bytes, cluster_);
        const double extra = core(operation.flops);
        seconds.context += std::max(0.0, passing - extra) + (cluster_.overlap_slowdown - 1) * std::min(passing, extra);
        break;
      }
      case Kind::kHeads:
        seconds.context += at_least_launch(exchange(context_group(layout_), operation.bytes, cluster_));
        break;
      case Kind::kGatherKeys:
        seconds.context += at_least_launch(half_reduce(context_group(layout_), operation.bytes, cluster_));
        break;
      case Kind::kExchange:
        seconds.expert += at_least_launch(exchange(expert_group(layout_), operation.bytes, cluster_));
        break;
    }
  }

  const Layout& layout_;
  const Cluster& cluster_;
  double peak_;
};

PartCosts part_costs(const PartOperations& part, const Pricing& pricing) {
  PartCosts costs{.forward = pricing.of(part.forward),
                  .input_gradient = pricing.of(part.input_gradient),
                  .weight_gradient = pricing.of(part.weight_gradient),
                  .core = pricing.of(part.core),
                  .kept = part.kept,
                  .kept_core = part.kept_core,
                  .kept_inputs = part.kept_inputs,
                  .kept_layer_input = part.kept_layer_input,
                  .kept_attention = part.kept_attention,
                  .working = part.working};
  pricing.add_waiting(costs);
  return costs;
}

double share_of_trained(const HeldParameters& held) {
  const double all = held.dense + held.experts;
  return all > 0 ? (held.trained_dense + held.trained_experts) / all : 0;
}

std::string prefix_of_layer(const models::DecoderSpec& model, std::size_t index) {
  return model.names.layers + "." + std::to_string(index) + ".";
}

// The bytes of the input of the second matrix of each adapter: one row for each token, or for each expert of a token.
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

// The bytes of the outputs of the layers with DoRA's magnitudes, whose gradients need them.
double kept_for_magnitudes(const Workload& workload, const Layout& layout, std::size_t index) {
  if (!workload.trained.dora) return 0;
  models::DecoderSpec alone = workload.model;
  alone.layers = {workload.model.layers[index]};
  const std::string prefix = prefix_of_layer(alone, 0), own = prefix_of_layer(workload.model, index);
  const auto rules = models::decoder_shards(alone);
  const double tokens = static_cast<double>(workload.sequence) * layout.microbatch / layout.context;
  double numbers = 0;
  for (const models::ParameterShape& parameter : models::parameter_shapes(alone)) {
    if (!parameter.name.starts_with(prefix)) continue;
    if (!workload.trained.adapters.contains(own + parameter.name.substr(prefix.size()))) continue;
    const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
    const bool is_split = std::ranges::any_of(rules, [&](const models::ModuleShard& rule) {
      return std::holds_alternative<Column>(rule.style) && matches_pattern(rule.path, module, Star::kOnePart);
    });
    numbers += tokens * static_cast<double>(parameter.shape.front()) / (is_split ? layout.tensor : 1);
  }
  return numbers * value_bytes(workload.precision);
}

// The bytes that frozen RMS norms do not keep: the normalised input, in float32 or wider, is only needed for the
// gradient of the weight.
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

// For each layer: whether it trains only the adapters of its experts.
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

// The bytes that a frozen attention does not keep: the input of its projections, which only weight gradients need. If
// no gradient passes through it, all of its bytes except those of the norm, which are subtracted separately.
double kept_for_attention(const PartCosts& layer, double kept_for_norm, bool goes_back) {
  return goes_back ? layer.kept_layer_input : layer.kept_attention - kept_for_norm;
}

// Removes the costs of frozen parameters from a table of full training, and adds the bytes that adapters keep. Frozen
// weights have no gradients. Before the first part with trained parameters there is no backward, and nothing is kept.
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
  const std::size_t tower = models::tower_layers(workload.model);
  leave_out(table.patches, parameters.patches);
  for (std::size_t index = 0; index < tower; ++index) leave_out(table.layers[index], parameters.layers[index]);
  leave_out(table.features, parameters.features);
  leave_out(table.embedding, parameters.first);
  for (std::size_t index = 0; index < workload.model.layers.size(); ++index) {
    PartCosts& layer = table.layers[tower + index];
    layer.kept += kept_by_adapters(workload, layout, index);
    layer.kept += kept_for_magnitudes(workload, layout, index);
    const std::string prefix = prefix_of_layer(workload.model, index);
    if (is_rms) layer.kept -= kept_for_norms(workload, layout, prefix);
    if (experts_alone[index]) {
      const double norms = kept_for_norms(workload, layout, prefix);
      layer.kept -= kept_for_attention(layer, is_rms ? norms / 2 : 0, /*goes_back=*/!is_before);
    }
    leave_out(layer, parameters.layers[tower + index]);
  }
  if (is_rms) table.head.kept -= kept_for_norms(workload, layout, workload.model.names.norm + ".");
  leave_out(table.head, parameters.last);
}

}  // namespace

CostTable make_cost_table(const Workload& workload, const Layout& layout, const Cluster& cluster) {
  const Pricing pricing(workload, layout, cluster);
  CostTable table;
  for (int layer = 0; layer < pipeline_layers(workload.model); ++layer)
    table.layers.push_back(repeats_layer(workload.model, layer)
                               ? table.layers.back()
                               : part_costs(layer_operations(workload, layer, layout), pricing));
  if (workload.model.vision) {
    table.patches = part_costs(patch_operations(workload, layout), pricing);
    table.features = part_costs(feature_operations(workload, layout), pricing);
  }
  table.embedding = part_costs(embedding_operations(workload, layout), pricing);
  table.head = part_costs(head_operations(workload, layout), pricing);
  table.parameters = held_parameters(workload.model, layout.tensor, layout.expert, workload.trained);
  if (!workload.trained.is_all()) leave_out_frozen(table, workload, layout);
  return table;
}

}  // namespace gantry::planner

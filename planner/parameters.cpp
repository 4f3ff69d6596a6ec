#include "gantry/planner/parameters.h"

#include <algorithm>
#include <set>
#include <string>

#include "gantry/core/axis.h"
#include "gantry/core/base/wildcard.h"
#include "gantry/core/error.h"
#include "gantry/core/slice.h"
#include "gantry/models/described/decoder_shards.h"
#include "gantry/models/described/vision_modules.h"
#include "gantry/planner/operations.h"

namespace gantry::planner {
namespace {

using models::DecoderSpec;
using models::LayerSpec;
using models::ParameterShape;

// The fraction of a parameter on the rank with the largest part.
struct Share {
  double fraction = 1;
  int dim = -1;  // the sharded dimension; -1: none
};

Share largest_share(const ParameterSplit& split, const Shape& shape) {
  if (split.shards.empty()) return {};
  const ShardSpec& shard = split.shards.front();
  std::int64_t most = 0;
  for (int rank = 0; rank < shard.ranks(); ++rank) most = std::max(most, shard.local_size(rank));
  return {static_cast<double>(most) / static_cast<double>(shape.at(shard.dim)), shard.dim};
}

// Applies the shard rules of a model with at most one layer.
class ShardShares {
 public:
  ShardShares(const DecoderSpec& spec, int tensor, int expert)
      : spec_(spec), rules_(models::decoder_shards(spec)), tensor_(tensor), expert_(expert) {}

  Share of(const ParameterShape& parameter) const {
    if (tensor_ == 1 && expert_ == 1) return {};
    const auto dot = parameter.name.rfind('.');
    const std::string module = parameter.name.substr(0, dot), own = parameter.name.substr(dot + 1);
    const auto rule = std::ranges::find_if(
        rules_, [&](const auto& each) { return matches_pattern(each.path, module, Star::kOnePart); });
    if (rule == rules_.end()) return {};
    try {
      return largest_share(split(rule->style, parameter.shape, own), parameter.shape);
    } catch (const ConfigError& error) {
      throw ConfigError(parameter.name + ": " + error.what());
    }
  }

 private:
  ParameterSplit split(const ShardStyle& style, const Shape& shape, const std::string& own) const {
    const std::vector<Axis> tensor_axes = {{axis::kTensor, tensor_}};
    if (!std::holds_alternative<Expert>(style)) return split_of(style, shape, tensor_axes);
    const ExpertShape shapes = models::expert_shape(*spec_.layers.front().experts, spec_.hidden);
    const bool is_partitioned = expert_ > 1;
    const Placements all = split_of(Expert{.partitioned = is_partitioned}, shapes,
                                    is_partitioned ? std::vector<Axis>{{axis::kExpert, expert_}} : tensor_axes);
    const auto found = all.find(own);
    return found == all.end() ? ParameterSplit() : found->second;
  }

  const DecoderSpec& spec_;
  std::vector<models::ModuleShard> rules_;
  int tensor_, expert_;
};

// The elements of the two matrices of an adapter, for a weight of which a rank holds `share` of the inputs (`by_input`)
// or of the outputs.
double held_factors(std::int64_t in, std::int64_t out, std::int64_t rank, double share, bool by_input) {
  const auto a = static_cast<double>(in * rank), b = static_cast<double>(out * rank);
  return by_input ? a * share + b : a + b * share;
}

// The same for a stack of experts; `share` is a fraction of the experts (`by_expert`) or of their width.
double held_stack_factors(const std::string& path, const LayerSpec& layer, std::int64_t hidden, std::int64_t rank,
                          double share, bool by_expert) {
  const ExpertShape shape = models::expert_shape(*layer.experts, hidden);
  const bool is_down = path.ends_with(std::string(".") + kDownStack);
  const std::int64_t in = is_down ? shape.width : hidden, out = is_down ? hidden : shape.inner();
  const double one =
      by_expert ? share * static_cast<double>((in + out) * rank) : held_factors(in, out, rank, share, is_down);
  return one * static_cast<double>(layer.experts->count);
}

// The magnitudes of DoRA: one for each output, of which a rank holds `share` unless the inputs are sharded.
double held_magnitudes(std::int64_t out, double share, bool by_input) {
  return static_cast<double>(out) * (by_input ? 1 : share);
}

HeldParameters layer_parameters(const DecoderSpec& without_layers, const LayerSpec& layer, int tensor, int expert,
                                const TrainedPart& trained, std::size_t index) {
  DecoderSpec alone = without_layers;
  alone.layers = {layer};
  const std::string prefix = alone.names.layers + ".0.";
  const std::string name_prefix = alone.names.layers + "." + std::to_string(index) + ".";
  const ShardShares shares(alone, tensor, expert);
  HeldParameters held;
  for (const ParameterShape& parameter : models::parameter_shapes(alone)) {
    if (!parameter.name.starts_with(prefix)) continue;
    const std::string path = parameter.name.substr(prefix.size());
    const auto elements = static_cast<double>(elements_of(parameter.shape));
    const auto adapter = trained.adapters.find(name_prefix + path);
    const std::int64_t rank = adapter == trained.adapters.end() ? 0 : adapter->second;
    const bool is_trained = trained.trains(name_prefix + path);
    const Share share = shares.of(parameter);
    if (path.starts_with(alone.names.experts + ".")) {
      held.add_experts(elements * share.fraction, is_trained);
      held.add_experts(held_stack_factors(path, layer, alone.hidden, rank, share.fraction, expert > 1), true);
    } else {
      held.add_dense(elements * share.fraction * trained.stored_share(name_prefix + path), is_trained);
      if (is_trained && share.dim == 1) held.trained_by_input += elements * share.fraction;
      if (rank > 0)
        held.add_dense(held_factors(parameter.shape.at(1), parameter.shape.at(0), rank, share.fraction,
                                    /*by_input=*/share.dim == 1),
                       true);
      if (rank > 0 && trained.dora)
        held.add_dense(held_magnitudes(parameter.shape.at(0), share.fraction, /*by_input=*/share.dim == 1), true);
    }
  }
  return held;
}

// Adds the layers of the tower, and the modules before and after them.
void add_image_encoder(ModelParameters& held, const DecoderSpec& spec, int tensor, const TrainedPart& trained) {
  DecoderSpec encoder = spec;
  encoder.layers.clear();
  models::VisionSpec& vision = *encoder.vision;
  const int layers = models::tower_layers(spec);
  const bool are_equal = trained.is_all() && layers > 0;
  if (are_equal) vision.tower.layers = 1;
  const models::EncoderPaths paths = models::encoder_paths(vision);
  const std::string prefix = paths.layers + ".";
  const ShardShares shares(encoder, tensor, /*expert=*/1);
  std::vector<HeldParameters> tower(vision.tower.layers);
  const auto part_of = [&](const std::string& name) -> HeldParameters& {
    if (name.starts_with(prefix)) return tower.at(std::stoi(name.substr(prefix.size())));
    const bool is_before =
        std::ranges::any_of(paths.before, [&](const std::string& module) { return name.starts_with(module + "."); });
    return is_before ? held.patches : held.features;
  };
  for (const ParameterShape& parameter : models::vision_parameters(vision, spec.hidden))
    part_of(parameter.name)
        .add_dense(static_cast<double>(elements_of(parameter.shape)) * shares.of(parameter).fraction,
                   trained.trains(parameter.name));
  if (are_equal) tower.resize(layers, tower.front());
  held.layers.insert(held.layers.begin(), tower.begin(), tower.end());
}

}  // namespace

HeldParameters& HeldParameters::operator+=(const HeldParameters& more) {
  dense += more.dense;
  experts += more.experts;
  trained_dense += more.trained_dense;
  trained_experts += more.trained_experts;
  trained_ends += more.trained_ends;
  trained_by_input += more.trained_by_input;
  return *this;
}

void HeldParameters::remove_tied(const ModelParameters& model) {
  dense -= model.tied;
  trained_dense -= model.trained_tied;
  trained_ends -= model.trained_tied;
}

void HeldParameters::add_end(double elements, bool is_trained) {
  add_dense(elements, is_trained);
  if (is_trained) trained_ends += elements;
}

void HeldParameters::add_dense(double elements, bool is_trained) {
  dense += elements;
  if (is_trained) trained_dense += elements;
}

void HeldParameters::add_experts(double elements, bool is_trained) {
  experts += elements;
  if (is_trained) trained_experts += elements;
}

ModelParameters held_parameters(const DecoderSpec& spec, int tensor, int expert, const TrainedPart& trained) {
  ModelParameters held;
  DecoderSpec without = spec;
  without.layers.clear();
  without.vision.reset();
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    const bool repeats = trained.is_all() && index > 0 && spec.layers[index] == spec.layers[index - 1];
    held.layers.push_back(repeats ? held.layers.back()
                                  : layer_parameters(without, spec.layers[index], tensor, expert, trained, index));
  }
  const ShardShares shares(without, tensor, expert);
  const std::set<std::string> last = {spec.names.norm, spec.names.head};
  for (const ParameterShape& parameter : models::parameter_shapes(without)) {
    const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
    const double share = shares.of(parameter).fraction;
    const double elements = static_cast<double>(elements_of(parameter.shape)) * share;
    const bool is_last = last.contains(module) || module.starts_with(spec.names.streams_out + ".");
    HeldParameters& end = is_last ? held.last : held.first;
    end.add_end(elements, trained.trains(parameter.name));
    if (const auto adapter = trained.adapters.find(parameter.name); adapter != trained.adapters.end())
      end.add_end(held_factors(parameter.shape.at(1), parameter.shape.at(0), adapter->second, share,
                               /*by_input=*/false) +
                      (trained.dora ? held_magnitudes(parameter.shape.at(0), share, /*by_input=*/false) : 0),
                  true);
    if (module != spec.names.tokens) continue;
    const auto rows = static_cast<double>(trained.tokens * parameter.shape.at(1));
    end.add_end(rows, true);
    if (!spec.tied) continue;
    held.tied = elements + rows;
    held.trained_tied = (trained.trains(parameter.name) ? elements : 0) + rows;
  }
  if (trained.projected > 0)  // sharded like the head
    held.last.add_end(as_double(models::embedding_columns(spec)) * largest_part(trained.projected, tensor), true);
  if (spec.vision) add_image_encoder(held, spec, tensor, trained);
  held.last.dense += held.tied;
  held.last.trained_dense += held.trained_tied;
  held.last.trained_ends += held.trained_tied;
  return held;
}

}  // namespace gantry::planner

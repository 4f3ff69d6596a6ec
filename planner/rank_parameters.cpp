#include "gantry/planner/rank_parameters.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "gantry/core/slice.h"

namespace gantry::planner {
namespace {

using models::DecoderNames;
using models::DecoderSpec;
using models::LayerSpec;

// Whole units of `of` over so many ranks: the largest part.
double largest_share(std::int64_t units, int ranks) {
  return std::ceil(static_cast<double>(units) / ranks) / static_cast<double>(units);
}

// How much of each parameter of a layer the rank with most has.
class LayerShares {
 public:
  LayerShares(const DecoderSpec& spec, const LayerSpec& layer, int tensor)
      : names_(spec.names), layer_(layer), tensor_(tensor) {}

  // `path` begins at the layer.
  double of(const std::string& path, std::int64_t rows) const {
    const models::AttentionSpec& attention = layer_.attention;
    const std::string module = path.substr(0, path.rfind('.'));
    if (is_row(module)) return path.ends_with(".bias") ? 1 : row_share(module);
    if (module == names_.query || module == names_.wide_query || module == names_.wide_key || module == names_.sinks)
      return largest_share(attention.heads, tensor_);
    if (module == names_.key || module == names_.value) return largest_share(attention.key_heads, tensor_);
    if (!names_.fused.empty() && module == names_.fused) return fused_share();
    const bool is_cut = attention.wide_norm.exists() || attention.own_norm.exists();
    if (is_cut && module == names_.query_norm) return largest_share(attention.heads, tensor_);
    if (is_cut && module == names_.key_norm) return largest_share(attention.key_heads, tensor_);
    return is_column(module) ? largest_share(rows, tensor_) : 1;
  }

 private:
  bool is_row(const std::string& module) const {
    return module == names_.output || module == names_.down || module == names_.shared + ".down_proj";
  }
  double row_share(const std::string& module) const {
    if (module == names_.output) return largest_share(layer_.attention.heads, tensor_);
    return largest_share(module == names_.down ? layer_.mlp.width : layer_.experts->shared_width, tensor_);
  }
  bool is_column(const std::string& module) const {
    return module == names_.gate || module == names_.up || module == names_.fused_gate ||
           module == names_.shared + ".gate_proj" || module == names_.shared + ".up_proj";
  }
  double fused_share() const {
    const auto heads = static_cast<double>(layer_.attention.heads);
    const auto keys = static_cast<double>(layer_.attention.key_heads);
    return (heads * largest_share(layer_.attention.heads, tensor_) +
            2 * keys * largest_share(layer_.attention.key_heads, tensor_)) /
           (heads + 2 * keys);
  }

  const DecoderNames& names_;
  const LayerSpec& layer_;
  int tensor_;
};

HeldParameters layer_parameters(const DecoderSpec& without_layers, const LayerSpec& layer, int tensor, int expert) {
  DecoderSpec alone = without_layers;
  alone.layers = {layer};
  const std::string prefix = alone.names.layers + ".0.";
  const LayerShares shares(alone, layer, tensor);
  HeldParameters held;
  for (const models::ParameterShape& parameter : models::parameter_shapes(alone)) {
    if (!parameter.name.starts_with(prefix)) continue;
    const std::string path = parameter.name.substr(prefix.size());
    const auto elements = static_cast<double>(elements_of(parameter.shape));
    if (path.starts_with(alone.names.experts + "."))
      held.experts += elements * (expert > 1 ? largest_share(layer.experts->count, expert)
                                             : largest_share(layer.experts->width, tensor));
    else
      held.dense += elements * shares.of(path, parameter.shape.front());
  }
  return held;
}

}  // namespace

HeldParameters& HeldParameters::operator+=(const HeldParameters& more) {
  dense += more.dense;
  experts += more.experts;
  return *this;
}

ModelParameters held_parameters(const DecoderSpec& spec, int tensor, int expert) {
  ModelParameters held;
  DecoderSpec without = spec;
  without.layers.clear();
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    const bool repeats = index > 0 && spec.layers[index] == spec.layers[index - 1];
    held.layers.push_back(repeats ? held.layers.back() : layer_parameters(without, spec.layers[index], tensor, expert));
  }
  const double words = largest_share(spec.vocabulary, tensor);
  const std::set<std::string> last = {spec.names.norm, spec.names.head};
  for (const models::ParameterShape& parameter : models::parameter_shapes(without)) {
    const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
    const bool split = module == spec.names.tokens || module == spec.names.head;
    const double elements = static_cast<double>(elements_of(parameter.shape)) * (split ? words : 1);
    (last.contains(module) ? held.last : held.first).dense += elements;
  }
  if (spec.tied) held.tied = static_cast<double>(spec.vocabulary * models::embedding_columns(spec)) * words;
  held.last.dense += held.tied;
  return held;
}

}  // namespace gantry::planner

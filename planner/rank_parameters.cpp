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
    if (module == names_.query || module == names_.q_b_proj || module == names_.kv_b_proj || module == names_.sinks)
      return largest_share(attention.heads, tensor_);
    if (module == names_.key || module == names_.value) return largest_share(attention.key_heads, tensor_);
    if (!names_.fused.empty() && module == names_.fused) return fused_share();
    const bool is_cut = attention.qk_norm.exists() || attention.per_head_norm.exists();
    if (is_cut && module == names_.query_norm) return largest_share(attention.heads, tensor_);
    if (is_cut && module == names_.key_norm) return largest_share(attention.key_heads, tensor_);
    return is_column(module) ? largest_share(rows, tensor_) : 1;
  }
  bool is_by_rows_of_input(const std::string& path) const { return is_row(path.substr(0, path.rfind('.'))); }

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

// Of the two factors of an adapter of a weight of which a rank has `share`: along `in` (`by_input`), or along `out`.
double held_factors(std::int64_t in, std::int64_t out, std::int64_t rank, double share, bool by_input) {
  const auto a = static_cast<double>(in * rank), b = static_cast<double>(out * rank);
  return by_input ? a * share + b : a + b * share;
}

// Of a stack of experts' weights; `share` is of whole experts, or of their width.
double held_stack_factors(const std::string& path, const LayerSpec& layer, std::int64_t hidden, std::int64_t rank,
                          double share, bool whole_experts) {
  const std::int64_t width = layer.experts->width;
  const bool is_down = path.ends_with(".down_proj");
  const std::int64_t in = is_down ? width : hidden, out = is_down ? hidden : 2 * width;
  const double one =
      whole_experts ? share * static_cast<double>((in + out) * rank) : held_factors(in, out, rank, share, is_down);
  return one * static_cast<double>(layer.experts->count);
}

HeldParameters layer_parameters(const DecoderSpec& without_layers, const LayerSpec& layer, int tensor, int expert,
                                const TrainedPart& trained, std::size_t index) {
  DecoderSpec alone = without_layers;
  alone.layers = {layer};
  const std::string prefix = alone.names.layers + ".0.";
  const std::string name_prefix = alone.names.layers + "." + std::to_string(index) + ".";
  const LayerShares shares(alone, layer, tensor);
  HeldParameters held;
  for (const models::ParameterShape& parameter : models::parameter_shapes(alone)) {
    if (!parameter.name.starts_with(prefix)) continue;
    const std::string path = parameter.name.substr(prefix.size());
    const auto elements = static_cast<double>(elements_of(parameter.shape));
    const auto adapter = trained.adapters.find(name_prefix + path);
    const std::int64_t rank = adapter == trained.adapters.end() ? 0 : adapter->second;
    const bool is_trained = trained.trains(name_prefix + path);
    if (path.starts_with(alone.names.experts + ".")) {
      const double share =
          expert > 1 ? largest_share(layer.experts->count, expert) : largest_share(layer.experts->width, tensor);
      held.add_experts(elements * share, is_trained);
      held.add_experts(held_stack_factors(path, layer, alone.hidden, rank, share, expert > 1), true);
    } else {
      const double share = shares.of(path, parameter.shape.front());
      held.add_dense(elements * share, is_trained);
      if (rank > 0)
        held.add_dense(
            held_factors(parameter.shape.at(1), parameter.shape.at(0), rank, share, shares.is_by_rows_of_input(path)),
            true);
    }
  }
  return held;
}

}  // namespace

HeldParameters& HeldParameters::operator+=(const HeldParameters& more) {
  dense += more.dense;
  experts += more.experts;
  trained_dense += more.trained_dense;
  trained_experts += more.trained_experts;
  return *this;
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
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    const bool repeats = trained.is_all() && index > 0 && spec.layers[index] == spec.layers[index - 1];
    held.layers.push_back(repeats ? held.layers.back()
                                  : layer_parameters(without, spec.layers[index], tensor, expert, trained, index));
  }
  const double words = largest_share(spec.vocabulary, tensor);
  const std::set<std::string> last = {spec.names.norm, spec.names.head};
  for (const models::ParameterShape& parameter : models::parameter_shapes(without)) {
    const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
    const bool split = module == spec.names.tokens || module == spec.names.head;
    const double elements = static_cast<double>(elements_of(parameter.shape)) * (split ? words : 1);
    HeldParameters& end = last.contains(module) ? held.last : held.first;
    end.add_dense(elements, trained.trains(parameter.name));
    if (const auto adapter = trained.adapters.find(parameter.name); adapter != trained.adapters.end())
      end.add_dense(held_factors(parameter.shape.at(1), parameter.shape.at(0), adapter->second, split ? words : 1,
                                 /*by_input=*/false),
                    true);
  }
  if (spec.tied) held.tied = static_cast<double>(spec.vocabulary * models::embedding_columns(spec)) * words;
  if (trained.trains(spec.names.tokens + ".weight")) held.trained_tied = held.tied;
  held.last.dense += held.tied;
  held.last.trained_dense += held.trained_tied;
  return held;
}

}  // namespace gantry::planner

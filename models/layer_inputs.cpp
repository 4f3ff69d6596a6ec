#include "gantry/models/layer_inputs.h"

#include <cmath>
#include <fmt/format.h>

#include "gantry/models/optional_parts.h"
#include "gantry/models/register_at.h"
#include "gantry/nn/activation.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

std::string layer_input(int layer) { return fmt::format("layer_input.{}", layer); }

void split_layer_inputs(TensorDict& state, const LayerRange& range, std::int64_t width) {
  if (!state.contains(kLayerInputs)) return;  // no layer is left
  const torch::Tensor all = state.take(kLayerInputs);
  std::vector<std::int64_t> sizes(range.size(), width);
  if (const std::int64_t rest = all.size(-1) - width * range.size(); rest > 0) sizes.push_back(rest);
  const auto parts = all.split_with_sizes(sizes, -1);
  for (int layer = range.begin; layer < range.end; ++layer) state.set(layer_input(layer), parts[layer - range.begin]);
  if (static_cast<int>(parts.size()) > range.size()) state.set(kLayerInputs, parts.back());
}

LayerInputs::LayerInputs(torch::nn::Module& root, const DecoderSpec& spec)
    : spec_(*spec.layer_inputs),
      padding_(spec.padding && *spec.padding < spec_.vocabulary ? spec.padding : std::nullopt),
      table_scale_(std::sqrt(static_cast<double>(spec_.width))),
      projection_scale_(1 / std::sqrt(static_cast<double>(spec.hidden))) {
  auto table = torch::nn::EmbeddingOptions(spec_.vocabulary, spec_.columns());
  if (padding_) table.padding_idx(padding_);
  table_ = register_at(root, spec.names.layer_tokens, nn::Embedding(table));
  projection_ = linear_at(root, spec.names.layer_projection, spec.hidden, spec_.columns(), false);
  norm_ = DecoderNorm(root, spec.names.layer_projection_norm, spec.norm, spec_.width);
}

torch::Tensor LayerInputs::forward(const torch::Tensor& input_ids, const torch::Tensor& embedded) {
  const torch::Tensor ids = input_ids.masked_fill(input_ids >= spec_.vocabulary, 0);
  const torch::Tensor found = scaled(table_(ids), table_scale_);
  const torch::Tensor projected =
      scaled(projection_(embedded), projection_scale_).unflatten(-1, {spec_.layers, spec_.width});
  return scaled(found + norm_(projected).flatten(-2), 1 / std::sqrt(2.0));
}

void LayerInputs::clear_padding() {
  if (padding_) table_->weight.select(0, *padding_).zero_();
}

LayerInputGate::LayerInputGate(torch::nn::Module& root, const LayerSpec& layer, const DecoderNames& names,
                               std::int64_t hidden)
    : activation_(layer.mlp.activation),
      gate_(linear_at(root, names.input_gate, hidden, layer.input_width, false)),
      projection_(linear_at(root, names.input_projection, layer.input_width, hidden, false)),
      norm_(root, names.input_norm, layer.input, hidden) {}

torch::Tensor LayerInputGate::operator()(const torch::Tensor& hidden, const torch::Tensor& embedding) {
  return norm_(projection_(nn::gated(gate_(hidden), embedding, activation_)));
}

}  // namespace gantry::models

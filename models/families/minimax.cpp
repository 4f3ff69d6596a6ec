#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/mixers/lightning.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

using nlohmann::json;

// True for layers with softmax attention: by layer_types or, in older files, attn_type_list, where 0 is lightning
// attention. Without either, every other layer from the first on.
std::vector<bool> softmax_layers(ConfigReader& reader, std::size_t layers) {
  const auto types = reader.words("layer_types", layers, {"full_attention", "linear_attention"});
  reader.ignore("attn_type_list");
  std::vector<bool> softmax;
  for (std::size_t layer = 0; layer < layers; ++layer)
    softmax.push_back(types.empty() ? layer % 2 == 0 : types[layer] == "full_attention");
  if (types.empty() && reader.has("attn_type_list")) {
    const json& list = reader.keys()["attn_type_list"];
    const bool fits = list.is_array() && list.size() == layers;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      if (!fits || (list[layer] != 0 && list[layer] != 1))
        refuse_key("attn_type_list", list, "a list with 0 or 1 for each layer");
      softmax[layer] = list[layer] == 1;
    }
  }
  reader.decides("softmax_layers", softmax);
  return softmax;
}

ResidualFactors read_factors(ConfigReader& reader, const std::string& part) {
  return {reader.number(part + "_alpha_factor", 1, -1e6, 1e6), reader.number(part + "_beta_factor", 1, -1e6, 1e6)};
}

// The slopes of the decay shrink from layer to layer.
MixerSpec lightning_of(const AttentionSpec& attention, const std::string& activation, std::size_t layer,
                       std::size_t layers) {
  const double depth = static_cast<double>(layer) / (static_cast<double>(layers) - 1 + 1e-5);
  return std::make_shared<const Lightning>(LightningSizes{
      .heads = attention.heads, .head_size = attention.head_size, .activation = activation, .decay = 1 - depth + 1e-5});
}

void read_published_minimax_keys(ConfigReader& reader, std::int64_t head_size) {
  reader.only("postnorm", true, "transformers has no other minimax");
  reader.only("shared_intermediate_size", 0, "transformers has no shared experts for minimax");
  reader.only("rotary_dim", head_size, "transformers rotates full heads of minimax");
  reader.only("sliding_window", nullptr, "Gantry has no windows for minimax");
  reader.only("router_jitter_noise", 0.0, "Gantry adds no noise to the router in training");
}

// Mixtral with lightning attention in most layers. Residuals are the outputs of the norms, times factors.
DecoderSpec read_minimax(ConfigReader& reader) {
  DecoderSpec spec =
      read_common(reader, {.width = 14336, .key_heads = 8, .positions = 131072, .eps = 1e-5, .theta = 1e6});
  const std::string activation = spec.layers.front().mlp.activation;
  ExpertsSpec experts;
  experts.count = reader.size("num_local_experts", 8);
  experts.used = reader.size("num_experts_per_tok", 2);
  experts.normalised = true;
  experts.width = spec.layers.front().mlp.width;
  experts.activation = activation;
  check_experts(experts);
  const ResidualFactors softmax = read_factors(reader, "full_attn"), lightning = read_factors(reader, "linear_attn"),
                        mlp = read_factors(reader, "mlp");
  const auto is_softmax = softmax_layers(reader, spec.layers.size());
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    LayerSpec& layer = spec.layers[index];
    layer.experts = experts;
    layer.normed_residual = true;
    layer.mixer_factors = is_softmax[index] ? softmax : lightning;
    layer.mlp_factors = mlp;
    if (!is_softmax[index]) layer.mixer = lightning_of(layer.attention, activation, index, spec.layers.size());
  }
  read_published_minimax_keys(reader, spec.layers.front().attention.head_size);
  spec.router_loss = read_router_loss(reader);
  return spec;
}

}  // namespace

DecoderFamily minimax_family() {
  DecoderFamily family = mixtral_family();
  family.model_type = "minimax";
  family.architecture = "MiniMaxForCausalLM";
  family.read = read_minimax;
  // Decays that follow from the sizes, and are stored nevertheless.
  for (const char* decay : {".slope_rate", ".query_decay", ".key_decay", ".diagonal_decay"})
    family.files.ignored.emplace_back(decay);
  // The result does not depend on the size of a block; the mode is that of shared experts.
  family.harmless = {"block_size", "shared_moe_mode"};
  return family;
}

}  // namespace gantry::models

#include <algorithm>
#include <fmt/format.h>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/mixers/ssd.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

using nlohmann::json;

// True for the layers of the list attn_layer_indices.
std::vector<bool> read_listed_layers(ConfigReader& reader, std::size_t layers) {
  reader.ignore("attn_layer_indices");
  std::vector<bool> listed(layers, false);
  if (reader.has("attn_layer_indices")) {
    const json& list = reader.keys()["attn_layer_indices"];
    const auto is_layer = [&](const json& entry) { return entry.is_number_integer() && entry >= 0 && entry < layers; };
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_layer))
      refuse_key("attn_layer_indices", list, fmt::format("a list of layers from 0 to {}", layers - 1));
    for (const json& entry : list) listed[entry.get<std::size_t>()] = true;
  }
  reader.decides("attending_layers", listed);
  return listed;
}

// Mixers of Mamba-2, and attention with rotary positions of half of each head in some layers.
DecoderSpec read_bamba(ConfigReader& reader) {
  reader.only("partial_rotary_factor", 0.5, "transformers reads it only in rope_parameters");
  DecoderSpec spec = read_common(reader, {.vocabulary = 128000,
                                          .width = 14336,
                                          .key_heads = 8,
                                          .positions = 262144,
                                          .eps = 1e-5,
                                          .rotated = 0.5,
                                          .padding = 0});
  spec.names.norm = "final_layernorm";
  spec.names.before_mlp = "pre_ff_layernorm";
  spec.names.gate = "feed_forward.gate_proj";
  spec.names.up = "feed_forward.up_proj";
  spec.names.down = "feed_forward.down_proj";
  const bool bias = reader.flag("attention_bias", false), mlp_bias = reader.flag("mlp_bias", false);
  const auto attends = read_listed_layers(reader, spec.layers.size());
  const auto mixer = std::make_shared<const Ssd>(read_named_ssd(reader, spec));
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    LayerSpec& layer = spec.layers[index];
    layer.attention.bias = layer.attention.output_bias = bias;
    layer.mlp.bias = mlp_bias;
    if (!attends[index]) layer.mixer = mixer;
  }
  reader.only("z_loss_coefficient", 0.0, "Gantry has no loss of the logits' size");
  return spec;
}

}  // namespace

DecoderFamily bamba_family() {
  return {.model_type = "bamba",
          .architecture = "BambaForCausalLM",
          .read = read_bamba,
          .files = {.renamed = mamba_file_names("mamba")},
          // transformers derives the kinds of layers from attn_layer_indices.
          .harmless = {"layer_types", "layers_block_type", "mamba_chunk_size", "num_logits_to_keep"},
          .small =
              small_keys_with({{"mamba_n_heads", 8}, {"mamba_d_state", 16}, {"attn_layer_indices", json::array({2})}})};
}

}  // namespace gantry::models

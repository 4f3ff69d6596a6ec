#include <nlohmann/json.hpp>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// In no_rope_layers, 0 stands for a layer without rotary embedding. Without this key, every fourth layer has
// none.
void read_rope_layers(ConfigReader& reader, DecoderSpec& spec) {
  reader.ignore("no_rope_layers");
  const std::int64_t interval = reader.size("no_rope_layer_interval", 4);
  nlohmann::json rope = nlohmann::json::array();
  if (reader.has("no_rope_layers")) rope = reader.keys()["no_rope_layers"];
  if (!rope.is_array() || (!rope.empty() && rope.size() != spec.layers.size()))
    refuse_key("no_rope_layers", rope, std::to_string(spec.layers.size()) + " numbers");
  nlohmann::json decided = nlohmann::json::array();
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
    const bool turns = rope.empty() ? static_cast<std::int64_t>(layer + 1) % interval != 0 : rope[layer] != 0;
    if (!turns) spec.layers[layer].attention.rotary = -1;
    decided.push_back(turns);
  }
  reader.decides("turning_layers", decided);
}

// Llama, some of whose layers have no positions.
DecoderSpec read_smollm3(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 128256,
                                          .hidden = 2048,
                                          .layers = 36,
                                          .heads = 16,
                                          .key_heads = 4,
                                          .positions = 32768,
                                          .theta = 2000000,
                                          .padding = 128004,
                                          .tied = true});
  const bool attention_bias = reader.flag("attention_bias", false), mlp_bias = reader.flag("mlp_bias", false);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = layer.attention.output_bias = attention_bias;
    layer.mlp.bias = mlp_bias;
  }
  read_rope_layers(reader, spec);
  const bool uses = reader.flag("use_sliding_window", false);
  const std::int64_t window = reader.size_or_none("sliding_window", 0);
  read_windows(reader, spec, window,
               [&](std::size_t layer) { return uses && window > 0 && spec.layers[layer].attention.rotary < 0; });
  return spec;
}

}  // namespace

DecoderFamily smollm3_family() {
  return {.model_type = "smollm3",
          .architecture = "SmolLM3ForCausalLM",
          .read = read_smollm3,
          .harmless = {"max_window_layers", "pretraining_tp"}};
}

}  // namespace gantry::models

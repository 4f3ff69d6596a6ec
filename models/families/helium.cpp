#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Llama with rotary features in adjacent pairs.
DecoderSpec read_helium(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 48000,
                                          .hidden = 2560,
                                          .width = 7040,
                                          .layers = 24,
                                          .heads = 20,
                                          .key_heads = 20,
                                          .head_size = 128,
                                          .positions = 4096,
                                          .eps = 1e-8,
                                          .theta = 100000,
                                          .padding = 3,
                                          .paired = true});
  const bool bias = reader.flag("attention_bias", false), mlp_bias = reader.flag("mlp_bias", false);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = bias;
    layer.mlp.bias = mlp_bias;
  }
  const AttentionSpec& attention = spec.layers.front().attention;
  if (attention.heads * attention.head_size != spec.hidden)
    refuse_key("head_dim", attention.head_size, "hidden_size / num_attention_heads, as in transformers' helium");
  return spec;
}

}  // namespace

DecoderFamily helium_family() {
  return {.model_type = "helium", .architecture = "HeliumForCausalLM", .read = read_helium};
}

}  // namespace gantry::models

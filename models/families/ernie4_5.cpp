#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Llama with rotary features in adjacent pairs.
DecoderSpec read_ernie4_5(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 103424,
                                          .hidden = 1024,
                                          .width = 3072,
                                          .layers = 18,
                                          .heads = 16,
                                          .key_heads = 2,
                                          .head_size = 128,
                                          .positions = 131072,
                                          .eps = 1e-5,
                                          .theta = 500000,
                                          .padding = 0,
                                          .tied = true,
                                          .paired = true});
  const bool bias = reader.flag("use_bias", false);
  for (LayerSpec& layer : spec.layers) layer.attention.bias = layer.attention.output_bias = layer.mlp.bias = bias;
  return spec;
}

}  // namespace

DecoderFamily ernie4_5_family() {
  return {.model_type = "ernie4_5", .architecture = "Ernie4_5ForCausalLM", .read = read_ernie4_5};
}

}  // namespace gantry::models

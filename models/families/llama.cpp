#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

DecoderSpec read_llama(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {});
  const bool attention_bias = reader.flag("attention_bias", false), mlp_bias = reader.flag("mlp_bias", false);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = layer.attention.output_bias = attention_bias;
    layer.mlp.bias = mlp_bias;
  }
  return spec;
}

}  // namespace

DecoderFamily llama_family() {
  return {
      .model_type = "llama", .architecture = "LlamaForCausalLM", .read = read_llama, .harmless = {"pretraining_tp"}};
}

}  // namespace gantry::models

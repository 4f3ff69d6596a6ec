#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Llama with multipliers of embedding, residual branches, scores and logits.
DecoderSpec read_granite(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {});
  const bool attention_bias = reader.flag("attention_bias", false), mlp_bias = reader.flag("mlp_bias", false);
  const double scale = reader.number("attention_multiplier", 1, 1e-9, 1e6);
  const double residual = reader.number("residual_multiplier", 1, 1e-9, 1e6);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = layer.attention.output_bias = attention_bias;
    layer.attention.scale = scale;
    layer.mlp.bias = mlp_bias;
    layer.residual_scale = residual;
  }
  spec.embedding_scale = reader.number("embedding_multiplier", 1, 1e-9, 1e6);
  spec.logit_scale = 1 / reader.number("logits_scaling", 1, 1e-9, 1e6);
  return spec;
}

}  // namespace

DecoderFamily granite_family() {
  return {.model_type = "granite", .architecture = "GraniteForCausalLM", .read = read_granite};
}

}  // namespace gantry::models

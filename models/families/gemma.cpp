#include <cmath>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {

void make_gemma(DecoderSpec& spec) {
  spec.norm.one_plus_weight = true;
  for (LayerSpec& layer : spec.layers) layer.input = layer.before_mlp = spec.norm;
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden));
}

namespace {

// Llama with norms of 1 + weight, a scaled embedding and GELU.
DecoderSpec read_gemma(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 256000,
                                          .hidden = 3072,
                                          .width = 24576,
                                          .layers = 28,
                                          .heads = 16,
                                          .key_heads = 16,
                                          .head_size = 256,
                                          .positions = 8192,
                                          .padding = 0,
                                          .tied = true,
                                          .activation = "gelu_pytorch_tanh"});
  const bool bias = reader.flag("attention_bias", false);
  reader.only("use_bidirectional_attention", false, "decoders of Gantry are causal");
  reader.only("hidden_activation", "gelu_pytorch_tanh");
  make_gemma(spec);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = layer.attention.output_bias = bias;
    // The first files name gelu, but mean its tanh form.
    if (layer.mlp.activation == "gelu") layer.mlp.activation = "gelu_pytorch_tanh";
  }
  return spec;
}

}  // namespace

DecoderFamily gemma_family() { return {.model_type = "gemma", .architecture = "GemmaForCausalLM", .read = read_gemma}; }

}  // namespace gantry::models

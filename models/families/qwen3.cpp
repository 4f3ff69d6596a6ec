#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Qwen 2 with norms of queries and keys per head in place of the biases.
DecoderSpec read_qwen3(ConfigReader& reader) {
  DecoderSpec spec = read_common(
      reader, {.vocabulary = 151936, .width = 22016, .key_heads = 32, .head_size = 128, .positions = 32768});
  const bool bias = reader.flag("attention_bias", false);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = layer.attention.output_bias = bias;
    layer.attention.head_norm = layer.input;
  }
  read_qwen_windows(reader, spec);
  return spec;
}

}  // namespace

DecoderFamily qwen3_family() { return {.model_type = "qwen3", .architecture = "Qwen3ForCausalLM", .read = read_qwen3}; }

}  // namespace gantry::models

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Llama with biases of query, key and value. The later layers can have a sliding window.
DecoderSpec read_qwen2(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 151936, .width = 22016, .key_heads = 32, .positions = 32768});
  for (LayerSpec& layer : spec.layers) layer.attention.bias = true;
  read_qwen_windows(reader, spec);
  return spec;
}

}  // namespace

void read_qwen_windows(ConfigReader& reader, DecoderSpec& spec, std::int64_t full) {
  const bool uses = reader.flag("use_sliding_window", false);
  const std::int64_t window = reader.size_or_none("sliding_window", 4096);
  const std::int64_t first = reader.size("max_window_layers", full, 0);
  read_windows(reader, spec, uses ? window : 0,
               [&](std::size_t layer) { return uses && window > 0 && static_cast<std::int64_t>(layer) >= first; });
}

DecoderFamily qwen2_family() { return {.model_type = "qwen2", .architecture = "Qwen2ForCausalLM", .read = read_qwen2}; }

}  // namespace gantry::models

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Llama without biases. If config.json has a window, all layers use it.
DecoderSpec read_mistral(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.width = 14336, .key_heads = 8, .positions = 131072});
  set_window_of_all(spec, reader.size_or_none("sliding_window", 4096));
  return spec;
}

}  // namespace

DecoderFamily mistral_family() {
  return {.model_type = "mistral", .architecture = "MistralForCausalLM", .read = read_mistral};
}

}  // namespace gantry::models

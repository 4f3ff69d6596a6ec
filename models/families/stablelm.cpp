#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Llama with layer norms, of whose heads a quarter turns; attention may stand beside the MLP, after one norm.
DecoderSpec read_stablelm(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 50304,
                                          .hidden = 2560,
                                          .width = 6912,
                                          .positions = 4096,
                                          .eps = 1e-5,
                                          .rotated = 0.25,
                                          .eps_key = "layer_norm_eps",
                                          .norm = {NormSpec::Kind::kLayer}});
  const bool bias = reader.flag("use_qkv_bias", false), parallel = reader.flag("use_parallel_residual", false);
  reader.only("qk_layernorm", false);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = bias;
    layer.parallel = parallel;
    if (parallel) layer.before_mlp = {};
  }
  spec.output_dropout = reader.number("hidden_dropout", 0, 0, 1);
  spec.names.mlp_dropout = "dropout";  // of the MLP alone
  return spec;
}

}  // namespace

DecoderFamily stablelm_family() {
  return {.model_type = "stablelm", .architecture = "StableLmForCausalLM", .read = read_stablelm};
}

}  // namespace gantry::models

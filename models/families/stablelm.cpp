#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

constexpr const char *kQueryNorm = "self_attn.q_layernorm", *kKeyNorm = "self_attn.k_layernorm";

// Llama with layer norms, in which a quarter of each head is rotated. Attention and MLP can be in parallel
// after one norm.
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
  const bool norms_heads = reader.flag("qk_layernorm", false);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = bias;
    if (norms_heads)
      layer.attention.per_head_norm = {.kind = NormSpec::Kind::kLayer, .eps = spec.norm.eps, .bias = false};
    layer.parallel = parallel;
    if (parallel) layer.before_mlp = {};
  }
  spec.output_dropout = reader.number("hidden_dropout", 0, 0, 1);
  spec.names.query_norm = kQueryNorm;
  spec.names.key_norm = kKeyNorm;
  spec.names.mlp_dropout = "dropout";  // for the MLP only
  return spec;
}

}  // namespace

DecoderFamily stablelm_family() {
  const auto by_head = [](const std::string& path) { return std::pair(path, path + ".norms.{}"); };
  return {.model_type = "stablelm",
          .architecture = "StableLmForCausalLM",
          .read = read_stablelm,
          .files = {.by_row = {by_head(kQueryNorm), by_head(kKeyNorm)}}};
}

}  // namespace gantry::models

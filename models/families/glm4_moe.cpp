#include <algorithm>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Half of each head is rotated. The layers after the first ones have experts, and an MLP that all tokens use.
DecoderSpec read_glm4_moe(ConfigReader& reader) {
  const nlohmann::json& keys = reader.keys();
  const std::int64_t hidden = size_key(keys, "hidden_size", 4096), heads = size_key(keys, "num_attention_heads", 96);
  DecoderSpec spec = read_common(reader, {.vocabulary = 151552,
                                          .width = 10944,
                                          .layers = 46,
                                          .heads = 96,
                                          .key_heads = 8,
                                          .head_size = std::max<std::int64_t>(hidden / heads, 1),
                                          .positions = 131072,
                                          .eps = 1e-5,
                                          .rotated = 0.5});
  const bool bias = reader.flag("attention_bias", false), norms_heads = reader.flag("use_qk_norm", false);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = bias;
    if (norms_heads) layer.attention.head_norm = spec.norm;
  }
  read_mtp(reader, spec);
  const ExpertsSpec experts =
      read_sigmoid_experts(reader, spec.layers.front().mlp.activation,
                           {.count = 128, .used = 8, .width = 1408, .normalised = true, .shared_width = 1});
  give_experts_after(reader, spec, experts, 1);
  return spec;
}

}  // namespace

DecoderFamily glm4_moe_family() {
  FileNames files = separate_expert_files();
  files.further_layers = true;
  return {
      .model_type = "glm4_moe",
      .architecture = "Glm4MoeForCausalLM",
      .read = read_glm4_moe,
      .files = files,
      .harmless = {"num_mtp_layers", "num_nextn_predict_layers", "output_router_logits"},
      .small = small_keys_with({{"n_routed_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 64}})};
}

}  // namespace gantry::models

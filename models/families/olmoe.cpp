#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Experts in every layer, and norms of queries and of keys over all heads together. They precede the
// clamping.
DecoderSpec read_olmoe(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 50304,
                                          .hidden = 2048,
                                          .width = 2048,
                                          .layers = 16,
                                          .heads = 16,
                                          .positions = 4096,
                                          .eps = 1e-5,
                                          .padding = 1});
  ExpertsSpec experts;
  experts.count = reader.size("num_experts", 64);
  experts.used = reader.size("num_experts_per_tok", 8);
  experts.normalised = reader.flag("norm_topk_prob", false);
  experts.width = spec.layers.front().mlp.width;
  experts.activation = spec.layers.front().mlp.activation;
  check_experts(experts);
  const bool bias = reader.flag("attention_bias", false);
  const double clip = reader.number_or_none("clip_qkv", 0, 0, 1e9);
  for (LayerSpec& layer : spec.layers) {
    layer.experts = experts;
    layer.attention.qk_norm = spec.norm;
    layer.attention.bias = layer.attention.output_bias = bias;
    layer.attention.clip = clip;
  }
  spec.router_loss = read_router_loss(reader, 0.01);
  return spec;
}

}  // namespace

DecoderFamily olmoe_family() {
  return {.model_type = "olmoe",
          .architecture = "OlmoeForCausalLM",
          .read = read_olmoe,
          .files = separate_expert_files(),
          .harmless = {},
          .small = small_keys_with({{"num_experts", 4}, {"num_experts_per_tok", 2}, {"intermediate_size", 64}})};
}

}  // namespace gantry::models

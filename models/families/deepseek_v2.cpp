#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Scores are a softmax over all experts. A group is chosen by its best expert.
ExpertsSpec read_softmax_experts(ConfigReader& reader, const std::string& activation) {
  ExpertsSpec experts;
  experts.count = reader.size("n_routed_experts", 64);
  experts.used = reader.size("num_experts_per_tok", 6);
  experts.width = reader.size("moe_intermediate_size", 1407);
  experts.activation = activation;
  experts.scale = reader.number("routed_scaling_factor", 1, 1e-6, 1e6);
  experts.shared_width = reader.size("n_shared_experts", 2) * experts.width;
  const std::int64_t groups = reader.size("n_group", 1), used_groups = reader.size("topk_group", 1);
  if (reader.choice("topk_method", "greedy", {"greedy", "group_limited_greedy"}) == "group_limited_greedy") {
    experts.groups = groups;
    experts.used_groups = used_groups;
    experts.group_scores = 1;
  }
  reader.only("norm_topk_prob", false, "transformers does not normalise the weights of deepseek_v2");
  reader.only("scoring_func", "softmax", "Gantry has no other scores of experts for deepseek_v2");
  reader.only("moe_layer_freq", 1, "every layer after the dense ones has experts");
  check_experts(experts);
  return experts;
}

// Latent attention. The layers after the first ones have experts, and an MLP that all tokens use.
DecoderSpec read_deepseek_v2(ConfigReader& reader) {
  const std::int64_t rope = reader.size("qk_rope_head_dim", 64, 2);
  reader.only("head_dim", rope);
  DecoderSpec spec = read_common(reader, {.vocabulary = 102400, .head_size = rope, .paired = true});
  read_latent_attention(reader, spec, rope);
  reader.only("mlp_bias", false, "shared experts of Gantry have no biases");
  give_experts_after(reader, spec, read_softmax_experts(reader, spec.layers.front().mlp.activation), 0);
  return spec;
}

}  // namespace

DecoderFamily deepseek_v2_family() {
  DecoderFamily family = deepseek_v3_family();
  family.model_type = "deepseek_v2";
  family.architecture = "DeepseekV2ForCausalLM";
  family.read = read_deepseek_v2;
  return family;
}

}  // namespace gantry::models

#include <algorithm>
#include <cmath>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// With YaRN, scores are scaled up, because they would be too flat for longer texts.
double scale_of_scores(const nn::RotaryOptions& rotary, std::int64_t head_size) {
  const double scale = 1 / std::sqrt(static_cast<double>(head_size));
  if (rotary.type == "default" || rotary.mscale_all_dim == 0 || rotary.factor <= 1) return scale;
  const double longer = 0.1 * rotary.mscale_all_dim * std::log(rotary.factor) + 1;
  return scale * longer * longer;
}

// Latent attention; experts after the first layers, chosen from groups, and an MLP that all tokens use.
DecoderSpec read_deepseek_v3(ConfigReader& reader) {
  const std::int64_t rope = reader.size("qk_rope_head_dim", 64, 2);
  reader.only("head_dim", rope);
  DecoderSpec spec = read_common(reader, {.vocabulary = 129280,
                                          .hidden = 7168,
                                          .width = 18432,
                                          .layers = 61,
                                          .heads = 128,
                                          .head_size = rope,
                                          .positions = 4096,
                                          .paired = reader.flag("rope_interleave", true)});
  read_latent_attention(reader, spec, rope);
  read_mtp(reader, spec);
  const ExpertsSpec experts = read_sigmoid_experts(reader, spec.layers.front().mlp.activation,
                                                   {.count = 256,
                                                    .used = 8,
                                                    .width = 2048,
                                                    .normalised = true,
                                                    .scale = 2.5,
                                                    .groups = 8,
                                                    .used_groups = 4,
                                                    .shared_width = 1});
  give_experts_after(reader, spec, experts, 3);
  return spec;
}

}  // namespace

void read_latent_attention(ConfigReader& reader, DecoderSpec& spec, std::int64_t rope) {
  AttentionSpec attention = spec.layers.front().attention;
  LatentSpec latent;
  latent.query_rank = reader.size_or_none("q_lora_rank", 1536);
  latent.key_rank = reader.size("kv_lora_rank", 512);
  latent.plain = reader.size("qk_nope_head_dim", 128);
  latent.rope = rope;
  latent.value = reader.size("v_head_dim", 128);
  latent.bias = attention.output_bias = reader.flag("attention_bias", false);
  attention.head_size = latent.plain + latent.rope;
  reader.only("num_key_value_heads", attention.heads);
  reader.only("qk_head_dim", attention.head_size);
  attention.scale = scale_of_scores(spec.rotaries.front(), attention.head_size);
  attention.latent = latent;
  for (LayerSpec& layer : spec.layers) layer.attention = attention;
}

ExpertsSpec read_sigmoid_experts(ConfigReader& reader, const std::string& activation, const ExpertsSpec& missing) {
  ExpertsSpec experts;
  experts.count = reader.size("n_routed_experts", missing.count);
  experts.used = reader.size("num_experts_per_tok", missing.used);
  experts.width = reader.size("moe_intermediate_size", missing.width);
  experts.activation = activation;
  experts.scores = ExpertsSpec::Scores::kSigmoid;
  experts.normalised = reader.flag("norm_topk_prob", missing.normalised);
  experts.added = 1e-20;
  experts.scale = reader.number("routed_scaling_factor", missing.scale, 1e-6, 1e6);
  experts.correction = true;
  experts.groups = reader.size("n_group", missing.groups);
  experts.used_groups = reader.size("topk_group", missing.used_groups);
  experts.shared_width = reader.size("n_shared_experts", missing.shared_width) * experts.width;
  reader.only("scoring_func", "sigmoid", "Gantry has no other scores of experts for " + reader.family());
  reader.only("topk_method", "noaux_tc", "Gantry has no other choice of experts for " + reader.family());
  reader.only("moe_layer_freq", 1, "every layer after the dense ones has experts");
  check_experts(experts);
  return experts;
}

void give_experts_after(ConfigReader& reader, DecoderSpec& spec, const ExpertsSpec& experts, std::int64_t missing) {
  const auto dense = static_cast<std::size_t>(reader.size("first_k_dense_replace", missing, 0));
  for (std::size_t index = std::min(dense, spec.layers.size()); index < spec.layers.size(); ++index)
    spec.layers[index].experts = experts;
  spec.names.shared = "mlp.shared_experts";
}

void read_mtp(ConfigReader& reader, DecoderSpec& spec) {
  if (!reader.has(kMtpFactor)) return;
  const double factor = reader.number(kMtpFactor, 0, 0, 1e6);
  if (factor == 0) return;
  // transformers 5 has the second spelling.
  const char* key = reader.has("num_nextn_predict_layers") ? "num_nextn_predict_layers" : "num_mtp_layers";
  const std::int64_t depths = reader.size(key, 0, 0);
  if (depths == 0)
    refuse_key(kMtpFactor, factor, "0, or no such key",
               "the model has no layers of multi-token prediction: num_nextn_predict_layers is 0 or missing");
  spec.mtp_loss = factor;
  LayerSpec layer = spec.layers.back();
  layer.mtp = true;
  spec.layers.insert(spec.layers.end(), static_cast<std::size_t>(depths), layer);
}

DecoderFamily deepseek_v3_family() {
  FileNames files = separate_expert_files();
  files.further_layers = true;
  return {.model_type = "deepseek_v3",
          .architecture = "DeepseekV3ForCausalLM",
          .read = read_deepseek_v3,
          .files = files,
          // Keys of training elsewhere, and of layers that predict further tokens, which are read with kMtpFactor.
          .harmless = {"aux_loss_alpha", "ep_size", "num_mtp_layers", "num_nextn_predict_layers",
                       "output_router_logits", "pretraining_tp", "seq_aux"},
          .small = {{"vocab_size", 256},
                    {"hidden_size", 64},
                    {"intermediate_size", 176},
                    {"num_hidden_layers", 4},
                    {"num_attention_heads", 4},
                    {"max_position_embeddings", 256},
                    {"q_lora_rank", 32},
                    {"kv_lora_rank", 24},
                    {"qk_nope_head_dim", 16},
                    {"qk_rope_head_dim", 8},
                    {"v_head_dim", 16},
                    {"n_routed_experts", 4},
                    {"num_experts_per_tok", 2},
                    {"moe_intermediate_size", 64},
                    {"n_group", 1},
                    {"topk_group", 1},
                    {"first_k_dense_replace", 1}}};
}

DecoderFamily kimi_k2_family() {
  DecoderFamily family = deepseek_v3_family();
  family.model_type = "kimi_k2";
  return family;
}

}  // namespace gantry::models

#include <algorithm>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Keys of published files, which share them with models that mix two kinds of attention.
void read_published_keys(ConfigReader& reader) {
  reader.ignore("attn_type_list");
  if (reader.has("attn_type_list"))
    for (const auto& type : reader.keys()["attn_type_list"])
      if (type != 1) refuse_key("attn_type_list", reader.keys()["attn_type_list"], "a list of 1, which is softmax");
  for (const char* key : {"use_qk_norm", "use_routing_bias"})
    reader.only(key, true, "transformers has no other minimax_m2");
  reader.only("qk_norm_type", "per_layer", "a norm is over all heads together");
  reader.only("scoring_func", "sigmoid", "transformers has no other minimax_m2");
  reader.only("shared_intermediate_size", 0, "transformers has no shared experts for minimax_m2");
  reader.only("attention_bias", false, "transformers has no biases for minimax_m2");
  reader.only("sliding_window", nullptr, "transformers has no windows for minimax_m2");
  reader.only("router_jitter_noise", 0.0, "Gantry adds no noise to the router in training");
}

// The part of a head that is rotated, if the file has no partial_rotary_factor.
double rotated_part(ConfigReader& reader) {
  reader.ignore("rotary_dim");
  const std::int64_t head_size = size_key(reader.keys(), "head_dim", 128);
  const std::int64_t rotated = size_key(reader.keys(), "rotary_dim", head_size);
  if (rotated > head_size) refuse_key("rotary_dim", rotated, "at most head_dim " + std::to_string(head_size));
  return static_cast<double>(rotated) / static_cast<double>(head_size);
}

// Norms of queries and of keys over all heads together, and experts with sigmoid scores in every layer.
DecoderSpec read_minimax_m2(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 200064,
                                          .hidden = 3072,
                                          .width = 1536,
                                          .layers = 62,
                                          .heads = 48,
                                          .key_heads = 8,
                                          .head_size = 128,
                                          .positions = 196608,
                                          .theta = 5000000,
                                          .rotated = rotated_part(reader)});
  ExpertsSpec experts;
  experts.count = reader.size("num_local_experts", 256);
  experts.used = reader.size("num_experts_per_tok", 8);
  experts.scores = ExpertsSpec::Scores::kSigmoid;
  experts.normalised = experts.correction = true;
  experts.width = spec.layers.front().mlp.width;
  experts.activation = spec.layers.front().mlp.activation;
  check_experts(experts);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qk_norm = spec.norm;
    layer.experts = experts;
  }
  read_published_keys(reader);
  spec.router_loss = read_router_loss(reader);
  return spec;
}

}  // namespace

DecoderFamily minimax_m2_family() {
  DecoderFamily family = mixtral_family();
  family.model_type = "minimax_m2";
  family.architecture = "MiniMaxM2ForCausalLM";
  family.read = read_minimax_m2;
  family.files.renamed.emplace_back("mlp.gate.e_score_correction_bias", "block_sparse_moe.e_score_correction_bias");
  family.files.further_layers = true;
  family.small["num_experts_per_tok"] = 2;
  // Keys of layers that predict further tokens, and of linear attention.
  family.harmless = {"layernorm_full_attention_beta",
                     "layernorm_linear_attention_beta",
                     "layernorm_mlp_beta",
                     "mtp_transformer_layers",
                     "num_mtp_modules",
                     "use_mtp"};
  return family;
}

}  // namespace gantry::models

#include <fmt/format.h>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/mixers/gated_delta.h"
#include "gantry/models/described/mixers/kimi_delta.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

using nlohmann::json;

// The sizes of Kimi delta attention: keys of their own or, in published files, the mapping linear_attn_config.
KimiDeltaSizes read_kimi_delta(ConfigReader& reader, const json& nested, double eps) {
  const auto size = [&](const char* key, const char* key_of_mapping, std::int64_t missing) {
    return reader.size(key, size_key(nested, key_of_mapping, missing));
  };
  return {.heads = size("linear_num_heads", "num_heads", 32),
          .head_size = size("linear_head_dim", "head_dim", 128),
          .kernel = size("linear_conv_kernel_dim", "short_conv_kernel_size", 4),
          .eps = eps};
}

// True for the layers with attention: by layer_types or, if the mapping has both of its lists, by full_attn_layers,
// which counts from 1. Without either, every fourth layer after the first.
std::vector<bool> latent_layers(ConfigReader& reader, const json& nested, std::size_t layers) {
  const auto types = reader.words("layer_types", layers, {"full_attention", "linear_attention"});
  std::vector<bool> attends;
  for (std::size_t layer = 0; layer < layers; ++layer)
    attends.push_back(types.empty() ? layer > 0 && layer % 4 == 0 : types[layer] == "full_attention");
  if (types.empty() && has_key(nested, "full_attn_layers") && has_key(nested, "kda_layers")) {
    const json& list = nested["full_attn_layers"];
    const std::string expected = fmt::format("a list of layers from 1 to {}", layers);
    attends.assign(layers, false);
    if (!list.is_array()) refuse_key("linear_attn_config.full_attn_layers", list, expected);
    for (const json& number : list) {
      if (!number.is_number_integer() || number < 1 || number > layers)
        refuse_key("linear_attn_config.full_attn_layers", list, expected);
      attends[number.get<std::size_t>() - 1] = true;
    }
  }
  reader.decides("attending_layers", attends);
  return attends;
}

// Latent attention without a rotary embedding. The features that other models rotate are an ordinary part of
// the key that all heads share.
AttentionSpec read_plain_latent_attention(ConfigReader& reader, AttentionSpec attention) {
  LatentSpec latent;
  latent.query_rank = reader.size_or_none("q_lora_rank", 0);
  latent.key_rank = reader.size("kv_lora_rank", 512);
  latent.plain = reader.size("qk_nope_head_dim", 128);
  latent.rope = reader.size("qk_rope_head_dim", 64);
  latent.value = reader.size("v_head_dim", 128);
  latent.bias = attention.output_bias = reader.flag("attention_bias", false);
  attention.head_size = latent.plain + latent.rope;
  attention.rotary = -1;
  attention.latent = latent;
  reader.only("num_key_value_heads", attention.heads);
  reader.only("qk_head_dim", attention.head_size);
  reader.only("mla_use_nope", true, "the latent attention of the family has no rotary embedding");
  return attention;
}

ExpertsSpec read_kimi_experts(ConfigReader& reader, const std::string& activation) {
  ExpertsSpec experts;
  experts.count = reader.size("num_experts", 256);
  experts.used = reader.size("num_experts_per_token", 8);
  experts.width = reader.size("moe_intermediate_size", 1024);
  experts.activation = activation;
  experts.scores = ExpertsSpec::Scores::kSigmoid;
  experts.normalised = reader.flag("moe_renormalize", true);
  experts.added = 1e-20;
  experts.scale = reader.number("routed_scaling_factor", 2.446, 1e-6, 1e6);
  experts.correction = true;
  experts.groups = reader.size("num_expert_group", 1);
  experts.used_groups = reader.size("topk_group", 1);
  experts.shared_width = reader.size("num_shared_experts", 1) * experts.width;
  reader.only("moe_router_activation_func", "sigmoid", "Gantry has no other scores of experts for kimi_linear");
  reader.only("use_grouped_topk", true, "Gantry has no other choice of experts for kimi_linear");
  reader.only("moe_layer_freq", 1, "every layer after the dense ones has experts");
  check_experts(experts);
  return experts;
}

// The layers with experts: by mlp_layer_types or those after the first first_k_dense_replace ones.
void give_kimi_experts(ConfigReader& reader, DecoderSpec& spec, const ExpertsSpec& experts) {
  const auto types = reader.words("mlp_layer_types", spec.layers.size(), {"dense", "sparse"});
  reader.ignore("first_k_dense_replace");
  const auto dense = static_cast<std::size_t>(size_key(reader.keys(), "first_k_dense_replace", 1, 0));
  json with_experts = json::array();
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
    if (types.empty() ? layer < dense : types[layer] == "dense") continue;
    spec.layers[layer].experts = experts;
    with_experts.push_back(layer);
  }
  reader.decides("layers_with_experts", with_experts);
}

DecoderSpec read_kimi_linear(ConfigReader& reader) {
  reader.ignore("head_dim");  // both kinds of layers have sizes of their own
  DecoderSpec spec = read_common(reader, {.vocabulary = 163840,
                                          .hidden = 2304,
                                          .width = 9216,
                                          .layers = 27,
                                          .heads = 32,
                                          .head_size = 72,
                                          .positions = reader.size("model_max_length", 1048576),
                                          .eps = 1e-5});
  require_silu(spec);
  const json nested = reader.mapping("linear_attn_config");
  const auto attends = latent_layers(reader, nested, spec.layers.size());
  const auto mixer = std::make_shared<const KimiDelta>(read_kimi_delta(reader, nested, spec.norm.eps));
  const AttentionSpec attention = read_plain_latent_attention(reader, spec.layers.front().attention);
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
    spec.layers[layer].attention = attention;
    if (!attends[layer]) spec.layers[layer].mixer = mixer;
  }
  give_kimi_experts(reader, spec, read_kimi_experts(reader, spec.layers.front().mlp.activation));
  spec.names.shared = "mlp.shared_experts";
  return spec;
}

// Files have the MLPs and experts of all layers below block_sparse_moe, and both kinds of attention below self_attn.
FileNames kimi_linear_files() {
  FileNames files{.expert_gate = "block_sparse_moe.experts.{}.w1",
                  .expert_up = "block_sparse_moe.experts.{}.w3",
                  .expert_down = "block_sparse_moe.experts.{}.w2"};
  for (const char* module : {"gate", "gate_proj", "up_proj", "down_proj", "shared_experts.gate_proj",
                             "shared_experts.up_proj", "shared_experts.down_proj"})
    files.renamed.emplace_back(std::string("mlp.") + module, std::string("block_sparse_moe.") + module);
  for (const char* module : {"q_proj", "k_proj", "v_proj", "q_conv1d", "k_conv1d", "v_conv1d", "b_proj", "f_a_proj",
                             "f_b_proj", "g_a_proj", "g_b_proj", "o_norm", "o_proj"})
    files.renamed.emplace_back(std::string("delta_attn.") + module, std::string("self_attn.") + module);
  files.renamed.emplace_back("delta_attn.rate.A_log", "self_attn.A_log");
  files.renamed.emplace_back("delta_attn.step.dt_bias", "self_attn.dt_bias");
  return files;
}

}  // namespace

DecoderFamily kimi_linear_family() {
  return {.model_type = "kimi_linear",
          .architecture = "KimiLinearForCausalLM",
          .read = read_kimi_linear,
          .files = kimi_linear_files(),
          // The family has no balancing loss; the second key is a setting of training elsewhere. The others are
          // spellings of keys that are read (key_spellings.h).
          .harmless = {"output_router_logits", "pretraining_tp", "n_group", "n_shared_experts", "norm_topk_prob",
                       "num_experts_per_tok", "num_local_experts"},
          .small = {{"vocab_size", 256},
                    {"hidden_size", 64},
                    {"intermediate_size", 176},
                    {"num_hidden_layers", 4},
                    {"num_attention_heads", 4},
                    {"model_max_length", 256},
                    {"kv_lora_rank", 24},
                    {"qk_nope_head_dim", 16},
                    {"qk_rope_head_dim", 8},
                    {"v_head_dim", 16},
                    {"linear_num_heads", 4},
                    {"linear_head_dim", 16},
                    {"num_experts", 4},
                    {"num_experts_per_token", 2},
                    {"moe_intermediate_size", 64},
                    {"layer_types", {"linear_attention", "linear_attention", "linear_attention", "full_attention"}}}};
}

}  // namespace gantry::models

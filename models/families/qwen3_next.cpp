// Qwen3-Next and Qwen 3.5: gated delta networks, and gated attention in every fourth layer.
#include <fmt/format.h>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/mixers/gated_delta.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

using nlohmann::json;

// The layers with attention: those of layer_types or, without it, every full_attention_interval-th one.
std::vector<bool> attending_qwen_layers(ConfigReader& reader, std::size_t layers) {
  const auto types = reader.words("layer_types", layers, {"full_attention", "linear_attention"});
  reader.ignore("full_attention_interval");
  const auto interval = static_cast<std::size_t>(size_key(reader.keys(), "full_attention_interval", 4));
  std::vector<bool> attends;
  for (std::size_t layer = 0; layer < layers; ++layer)
    attends.push_back(types.empty() ? (layer + 1) % interval == 0 : types[layer] == "full_attention");
  reader.decides("attending_layers", attends);
  return attends;
}

GatedDeltaSizes read_gated_delta(ConfigReader& reader, double eps, GatedDeltaSizes::Projections projections) {
  GatedDeltaSizes sizes{.key_heads = reader.size("linear_num_key_heads", 16),
                        .value_heads = reader.size("linear_num_value_heads", 32),
                        .key_size = reader.size("linear_key_head_dim", 128),
                        .value_size = reader.size("linear_value_head_dim", 128),
                        .kernel = reader.size("linear_conv_kernel_dim", 4),
                        .eps = eps,
                        .projections = projections};
  if (sizes.value_heads % sizes.key_heads != 0)
    refuse_key("linear_num_value_heads", sizes.value_heads,
               fmt::format("a multiple of linear_num_key_heads {}", sizes.key_heads));
  return sizes;
}

// Gives each layer gated attention or a gated delta network.
void make_hybrid(ConfigReader& reader, DecoderSpec& spec, GatedDeltaSizes::Projections projections) {
  reader.only("attn_output_gate", true, "the attention of the family has an output gate");
  require_silu(spec);
  const bool bias = reader.flag("attention_bias", false);
  const auto attends = attending_qwen_layers(reader, spec.layers.size());
  const auto mixer = std::make_shared<const GatedDelta>(read_gated_delta(reader, spec.norm.eps, projections));
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    LayerSpec& layer = spec.layers[index];
    layer.attention.gated = true;
    layer.attention.head_norm = spec.norm;
    layer.attention.bias = layer.attention.output_bias = bias;
    if (!attends[index]) layer.mixer = mixer;
  }
}

ExpertsSpec read_gated_experts(ConfigReader& reader, const std::string& activation, std::int64_t count,
                               std::int64_t used) {
  ExpertsSpec experts;
  experts.count = reader.size("num_experts", count);
  experts.used = reader.size("num_experts_per_tok", used);
  experts.width = reader.size("moe_intermediate_size", 512);
  experts.activation = activation;
  experts.normalised = true;
  experts.shared_width = reader.size("shared_expert_intermediate_size", 512);
  experts.shared_gate = true;
  check_experts(experts);
  return experts;
}

constexpr NormSpec kZeroCentred = {.kind = NormSpec::Kind::kRms, .one_plus_weight = true};

DecoderSpec read_qwen3_next(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 151936,
                                          .hidden = 2048,
                                          .width = 5632,
                                          .layers = 48,
                                          .heads = 16,
                                          .key_heads = 2,
                                          .head_size = 256,
                                          .positions = 32768,
                                          .rotated = 0.25,
                                          .norm = kZeroCentred});
  make_hybrid(reader, spec, GatedDeltaSizes::Projections::kGrouped);
  ExpertsSpec experts = read_gated_experts(reader, spec.layers.front().mlp.activation, 512, 10);
  experts.normalised = reader.flag("norm_topk_prob", true);
  give_every_experts(reader, spec, experts);
  spec.router_loss = read_router_loss(reader);
  return spec;
}

// The defaults that both forms of Qwen 3.5 share.
CommonDefaults qwen3_5_defaults() {
  return {.vocabulary = 248320,
          .heads = 16,
          .head_size = 256,
          .positions = 32768,
          .rotated = 0.25,
          .norm = kZeroCentred,
          .rows = nn::PositionRows::kInterleaved,
          .sections = {11, 11, 10}};
}

DecoderSpec read_qwen3_5_text(ConfigReader& reader) {
  CommonDefaults missing = qwen3_5_defaults();
  missing.width = 12288;
  missing.key_heads = 4;
  DecoderSpec spec = read_common(reader, missing);
  make_hybrid(reader, spec, GatedDeltaSizes::Projections::kJoined);
  return spec;
}

DecoderSpec read_qwen3_5_moe_text(ConfigReader& reader) {
  CommonDefaults missing = qwen3_5_defaults();
  missing.hidden = 2048;
  missing.width = 512;
  missing.layers = 40;
  missing.key_heads = 2;
  DecoderSpec spec = read_common(reader, missing);
  make_hybrid(reader, spec, GatedDeltaSizes::Projections::kJoined);
  const ExpertsSpec experts = read_gated_experts(reader, spec.layers.front().mlp.activation, 256, 8);
  reader.only("norm_topk_prob", true, "the routers of the family normalise the weights of a token's experts");
  reader.only("mlp_only_layers", json::array(), "every layer of the family has experts");
  for (LayerSpec& layer : spec.layers) layer.experts = experts;
  spec.router_loss = read_router_loss(reader);
  return spec;
}

// Files have the decays as parameters of the layer, and layers that predict further tokens.
DecoderFamily with_delta_files(DecoderFamily family) {
  family.files.renamed = {{"linear_attn.decay.A_log", "linear_attn.A_log"},
                          {"linear_attn.decay.dt_bias", "linear_attn.dt_bias"}};
  family.files.further_layers = true;
  family.small["head_dim"] = 16;
  for (const char* heads : {"linear_num_key_heads", "linear_num_value_heads"}) family.small[heads] = 4;
  for (const char* size : {"linear_key_head_dim", "linear_value_head_dim"}) family.small[size] = 16;
  return family;
}

// Published files have a text decoder and an image encoder.
DecoderFamily with_images(DecoderFamily family, const std::string& model_type, const std::string& architecture) {
  family.tower = TowerKeys{.text_types = {family.model_type}};
  family.small = {{"text_config", family.small}};
  family.model_type = model_type;
  family.architecture = architecture;
  family.files.prefix = "model.language_model.";
  family.files.other_parts = {"visual"};
  for (const char* key :
       {"image_token_id", "video_token_id", "vision_config", "vision_end_token_id", "vision_start_token_id"})
    family.harmless.emplace_back(key);
  return family;
}

}  // namespace

DecoderFamily qwen3_next_family() {
  return with_delta_files({.model_type = "qwen3_next",
                           .architecture = "Qwen3NextForCausalLM",
                           .read = read_qwen3_next,
                           .files = separate_expert_files(),
                           .harmless = {},
                           .small = small_keys_with({{"num_experts", 4},
                                                     {"num_experts_per_tok", 2},
                                                     {"moe_intermediate_size", 64},
                                                     {"shared_expert_intermediate_size", 64}})});
}

DecoderFamily qwen3_5_text_family() {
  return with_delta_files(
      {.model_type = "qwen3_5_text",
       .architecture = "Qwen3_5ForCausalLM",
       .read = read_qwen3_5_text,
       .harmless = {"mamba_ssm_dtype", "mlp_only_layers", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"}});
}

DecoderFamily qwen3_5_moe_text_family() {
  DecoderFamily family = qwen3_next_family();
  family.model_type = "qwen3_5_moe_text";
  family.architecture = "Qwen3_5MoeForCausalLM";
  family.read = read_qwen3_5_moe_text;
  family.harmless = {"mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"};
  return family;
}

DecoderFamily qwen3_5_family() {
  return with_images(qwen3_5_text_family(), "qwen3_5", "Qwen3_5ForConditionalGeneration");
}

DecoderFamily qwen3_5_moe_family() {
  return with_images(qwen3_5_moe_text_family(), "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration");
}

}  // namespace gantry::models

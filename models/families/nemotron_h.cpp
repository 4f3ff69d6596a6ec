#include <algorithm>
#include <fmt/format.h>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/mixers/ssd.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

using nlohmann::json;

enum class Block { kMamba, kAttention, kMlp, kExperts };

// The letters of hybrid_override_pattern.
Block block_of_letter(char letter, const json& pattern) {
  switch (letter) {
    case 'M':
      return Block::kMamba;
    case '*':
      return Block::kAttention;
    case '-':
      return Block::kMlp;
    case 'E':
      return Block::kExperts;
    default:
      refuse_key("hybrid_override_pattern", pattern, "a text of the letters M, E, * and -");
  }
}

Block block_of_word(const std::string& word) {
  if (word == "mlp") return Block::kMlp;
  if (word == "moe") return Block::kExperts;
  return word == "linear_attention" || word == "mamba" ? Block::kMamba : Block::kAttention;
}

// The block of each layer: by layers_block_type or, in older files, hybrid_override_pattern.
std::vector<Block> read_blocks(ConfigReader& reader) {
  std::vector<Block> blocks;
  reader.ignore("hybrid_override_pattern");
  const json& pattern = reader.keys().value("hybrid_override_pattern", json());
  if (reader.has("layers_block_type") || !reader.has("hybrid_override_pattern")) {
    const json missing = {"linear_attention", "moe", "full_attention", "mlp"};
    const json words = reader.has("layers_block_type") ? reader.keys()["layers_block_type"] : missing;
    reader.words("layers_block_type", words.size(),
                 {"linear_attention", "full_attention", "mamba", "attention", "mlp", "moe"});
    for (const json& word : words) blocks.push_back(block_of_word(word.get<std::string>()));
  } else {
    if (!pattern.is_string()) refuse_key("hybrid_override_pattern", pattern, "a text");
    for (const char letter : pattern.get<std::string>()) blocks.push_back(block_of_letter(letter, pattern));
  }
  json decided = json::array();
  for (const Block block : blocks) decided.push_back(static_cast<int>(block));
  reader.decides("blocks", decided);
  return blocks;
}

std::shared_ptr<const Ssd> read_nemotron_mixer(ConfigReader& reader, double eps) {
  SsdSizes sizes;
  sizes.heads = reader.size("mamba_num_heads", 128);
  sizes.head_size = reader.size("mamba_head_dim", 64);
  sizes.groups = reader.size("n_groups", 8);
  sizes.state = reader.size("ssm_state_size", 128);
  sizes.kernel = reader.size("conv_kernel", 4, 2);
  sizes.input_bias = sizes.output_bias = reader.flag("use_bias", false);
  sizes.convolution_bias = reader.flag("use_conv_bias", true);
  sizes.eps = eps;
  sizes.least_step = reader.number("time_step_min", 0.001, 1e-12, 1);  // also if time_step_limit is lower
  sizes.first_initial_step = std::max(sizes.least_step, reader.number("time_step_floor", 1e-4, 0, 1));
  sizes.last_initial_step = reader.number("time_step_max", 0.1, 1e-12, 1e6);
  check_ssd(sizes, {"mamba_num_heads", "n_groups"});
  reader.only("mamba_hidden_act", "silu", "the convolution of Gantry's mixer computes silu");
  reader.only("mamba_proj_bias", false, "transformers has no such bias in nemotron_h");
  return std::make_shared<const Ssd>(sizes);
}

ExpertsSpec read_nemotron_experts(ConfigReader& reader, const std::string& activation) {
  ExpertsSpec experts = read_sigmoid_experts(
      reader, activation, {.count = 8, .used = 2, .width = 7688, .normalised = true, .shared_width = 1});
  experts.gated = false;
  experts.shared_width = reader.size("moe_shared_expert_intermediate_size", 7688);
  reader.only("n_shared_experts", 1, "transformers has one shared expert in nemotron_h");
  reader.only("moe_latent_size", nullptr, "Gantry has no experts with a width of their own between layers");
  return experts;
}

// Each layer has one norm and one of four blocks: a mixer of Mamba-2, attention without positions, an MLP, or experts.
void give_blocks(ConfigReader& reader, DecoderSpec& spec, const std::vector<Block>& blocks) {
  const auto mixer = read_nemotron_mixer(reader, spec.norm.eps);
  const ExpertsSpec experts = read_nemotron_experts(reader, spec.layers.front().mlp.activation);
  for (std::size_t index = 0; index < blocks.size(); ++index) {
    LayerSpec& layer = spec.layers[index];
    layer.attention.rotary = -1;
    layer.mlp.gated = false;
    layer.only_mlp = blocks[index] == Block::kMlp || blocks[index] == Block::kExperts;
    layer.has_mlp = layer.only_mlp;
    (layer.only_mlp ? layer.input : layer.before_mlp) = {};
    if (blocks[index] == Block::kMamba) layer.mixer = mixer;
    if (blocks[index] == Block::kExperts) layer.experts = experts;
  }
}

DecoderNames nemotron_names() {
  DecoderNames names;
  names.tokens = "embeddings";
  names.norm = "norm_f";
  names.input = names.before_mlp = "norm";
  names.query = "mixer.q_proj";
  names.key = "mixer.k_proj";
  names.value = "mixer.v_proj";
  names.output = "mixer.o_proj";
  names.up = "mixer.up_proj";
  names.down = "mixer.down_proj";
  names.router = "mixer.gate";
  names.experts = "mixer.experts";
  names.shared = "mixer.shared_experts";
  return names;
}

DecoderSpec read_nemotron_h(ConfigReader& reader) {
  const std::vector<Block> blocks = read_blocks(reader);
  DecoderSpec spec = read_common(reader, {.vocabulary = 131072,
                                          .width = 21504,
                                          .layers = static_cast<std::int64_t>(blocks.size()),
                                          .key_heads = 8,
                                          .head_size = 128,
                                          .positions = 4096,
                                          .eps = 1e-5,
                                          .activation_key = "mlp_hidden_act",
                                          .activation = "relu2",
                                          .eps_key = "layer_norm_epsilon"});
  if (spec.layers.size() != blocks.size())
    refuse_key("num_hidden_layers", spec.layers.size(),
               fmt::format("{}, the number of layers in layers_block_type", blocks.size()));
  spec.names = nemotron_names();
  spec.padding = {};
  give_blocks(reader, spec, blocks);
  reader.only("attention_bias", false, "transformers has no biases in the attention of nemotron_h");
  reader.only("mlp_bias", false, "Gantry has no shared experts with biases");
  reader.only("sliding_window", nullptr, "Gantry has no windows for nemotron_h");
  return spec;
}

FileNames nemotron_files() {
  FileNames files{.prefix = "backbone.",
                  .renamed = mamba_file_names("mixer"),
                  .expert_up = "mixer.experts.{}.up_proj",
                  .expert_down = "mixer.experts.{}.down_proj"};
  files.further_layers = true;
  return files;
}

}  // namespace

DecoderFamily nemotron_h_family() {
  return {
      .model_type = "nemotron_h",
      .architecture = "NemotronHForCausalLM",
      .read = read_nemotron_h,
      .files = nemotron_files(),
      // transformers computes mixers by heads, whose limits of steps are fixed, and has no dropout. The others are
      // for initial weights, kernels, and layers that predict further tokens.
      .harmless = {"chunk_size", "expand", "hidden_dropout", "mamba_chunk_size", "mamba_dt_limit", "mamba_expand",
                   "mamba_ssm_cache_dtype", "moe_shared_expert_overlap", "mtp_hybrid_override_pattern",
                   "mtp_layers_block_type", "num_logits_to_keep", "num_nextn_predict_layers", "output_router_logits",
                   "rescale_prenorm_residual", "residual_in_fp32", "time_step_limit", "use_mamba_kernels"},
      .small = small_keys_with({{"layers_block_type", {"linear_attention", "moe", "full_attention", "mlp"}},
                                {"mamba_num_heads", 8},
                                {"mamba_head_dim", 16},
                                {"n_groups", 2},
                                {"ssm_state_size", 16},
                                {"n_routed_experts", 4},
                                {"moe_intermediate_size", 64},
                                {"moe_shared_expert_intermediate_size", 64}})};
}

}  // namespace gantry::models

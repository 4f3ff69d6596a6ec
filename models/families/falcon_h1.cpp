#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/mixers/ssd.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

constexpr double kLargest = 1e6;

// `count` multipliers; without the key they are 1.
std::vector<double> multipliers(ConfigReader& reader, const std::string& key, std::size_t count) {
  std::vector<double> made(count, 1);
  reader.ignore(key);
  if (reader.has(key)) {
    const nlohmann::json& list = reader.keys()[key];
    const std::string expected = "a list of " + std::to_string(count) + " numbers";
    if (!list.is_array() || list.size() != count) refuse_key(key, list, expected);
    for (std::size_t index = 0; index < count; ++index) {
      if (!list[index].is_number()) refuse_key(key, list, expected);
      made[index] = list[index].get<double>();
    }
  }
  reader.decides(key, made);
  return made;
}

std::shared_ptr<const Ssd> read_mixer(ConfigReader& reader, const DecoderSpec& spec) {
  SsdSizes sizes = read_named_ssd(reader, spec);
  sizes.output_bias = reader.flag("projectors_bias", false);
  sizes.normed = reader.flag("mamba_rms_norm", false);
  sizes.norm_before_gate = reader.flag("mamba_norm_before_gate", true);
  sizes.input_scale = reader.number("ssm_in_multiplier", 1, 1e-9, kLargest);
  sizes.output_scale = reader.number("ssm_out_multiplier", 1, 1e-9, kLargest);
  const auto scales = multipliers(reader, "ssm_multipliers", sizes.scales.size());
  std::copy(scales.begin(), scales.end(), sizes.scales.begin());
  return std::make_shared<const Ssd>(sizes);
}

// Attention and a mixer of Mamba-2 side by side in every layer, with multipliers of inputs, keys and outputs.
DecoderSpec read_falcon_h1(ConfigReader& reader) {
  DecoderSpec spec = read_common(
      reader, {.vocabulary = 128000, .width = 14336, .key_heads = 8, .positions = 8192, .eps = 1e-5, .padding = 0});
  spec.names.norm = "final_layernorm";
  spec.names.before_mlp = "pre_ff_layernorm";
  spec.names.gate = "feed_forward.gate_proj";
  spec.names.up = "feed_forward.up_proj";
  spec.names.down = "feed_forward.down_proj";
  const bool bias = reader.flag("attention_bias", false), mlp_bias = reader.flag("mlp_bias", false);
  const auto mlp_scales = multipliers(reader, "mlp_multipliers", 2);
  const double input = reader.number("attention_in_multiplier", 1, 1e-9, kLargest),
               key = reader.number("key_multiplier", 1, 1e-9, kLargest),
               output = reader.number("attention_out_multiplier", 1, 1e-9, kLargest);
  const auto mixer = read_mixer(reader, spec);
  for (LayerSpec& layer : spec.layers) {
    layer.mixer = mixer;
    layer.adds_attention = true;
    layer.attention.bias = layer.attention.output_bias = bias;
    layer.attention.input_scale = input;
    layer.attention.key_scale = key;
    layer.attention.output_scale = output;
    layer.mlp.bias = mlp_bias;
    layer.mlp.gate_scale = mlp_scales[0];
    layer.mlp.output_scale = mlp_scales[1];
  }
  spec.embedding_scale = reader.number("embedding_multiplier", 1, 1e-9, kLargest);
  spec.logit_scale = reader.number("lm_head_multiplier", 1, 1e-9, kLargest);
  reader.ignore("layers_block_type");  // every layer is a "hybrid"
  reader.only("attn_layer_indices", nullptr, "transformers has attention in every layer");
  reader.only("mamba_use_mlp", true, "transformers has an MLP in every layer");
  return spec;
}

}  // namespace

DecoderFamily falcon_h1_family() {
  return {.model_type = "falcon_h1",
          .architecture = "FalconH1ForCausalLM",
          .read = read_falcon_h1,
          .files = {.renamed = mamba_file_names("mamba")},
          .harmless = {"mamba_chunk_size", "mlp_expansion_factor", "num_logits_to_keep"},
          .small = small_keys_with({{"mamba_d_ssm", 96}, {"mamba_n_heads", 6}, {"mamba_d_state", 16}})};
}

}  // namespace gantry::models

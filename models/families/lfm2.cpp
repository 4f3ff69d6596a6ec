#include <fmt/format.h>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/mixers/short_convolution.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

using nlohmann::json;

DecoderNames lfm2_names() {
  DecoderNames names;
  names.norm = "embedding_norm";
  names.input = "operator_norm";
  names.query_norm = "self_attn.q_layernorm";
  names.key_norm = "self_attn.k_layernorm";
  names.output = "self_attn.out_proj";
  names.before_mlp = "ffn_norm";
  names.gate = "feed_forward.w1";
  names.up = "feed_forward.w3";
  names.down = "feed_forward.w2";
  return names;
}

// The layers with attention: those of layer_types or, in older files, of full_attn_idxs. Without either, all layers.
std::vector<bool> attending_layers(ConfigReader& reader, std::size_t layers) {
  const auto types = reader.words("layer_types", layers, {"full_attention", "conv"});
  reader.ignore("full_attn_idxs");
  std::vector<bool> attends(layers, true);
  if (!types.empty()) {
    for (std::size_t layer = 0; layer < layers; ++layer) attends[layer] = types[layer] == "full_attention";
  } else if (reader.has("full_attn_idxs")) {
    attends.assign(layers, false);
    for (const json& index : reader.keys()["full_attn_idxs"]) {
      const std::string expected = fmt::format("a list of layers from 0 to {}", layers - 1);
      if (!index.is_number_integer()) refuse_key("full_attn_idxs", reader.keys()["full_attn_idxs"], expected);
      const auto layer = index.get<std::int64_t>();
      if (layer < 0 || layer >= static_cast<std::int64_t>(layers))
        refuse_key("full_attn_idxs", reader.keys()["full_attn_idxs"], expected);
      attends[static_cast<std::size_t>(layer)] = true;
    }
  }
  reader.decides("attending_layers", attends);
  return attends;
}

// Two thirds of the stated width, times a factor, rounded up to a multiple.
std::int64_t mlp_width(ConfigReader& reader) {
  const std::int64_t stated = reader.size("block_ff_dim", reader.size("intermediate_size", 12288));
  const bool adjusts = reader.flag("block_auto_adjust_ff_dim", true);
  const double factor = reader.number("block_ffn_dim_multiplier", 1, 1e-9, 1e6);
  const std::int64_t multiple = reader.size("block_multiple_of", 256);
  if (!adjusts) return stated;
  const std::int64_t reduced = 2 * stated / 3;
  const auto width = static_cast<std::int64_t>(factor * static_cast<double>(reduced));
  return (width + multiple - 1) / multiple * multiple;
}

// Gated short convolutions, and attention with norms of queries and keys per head in a few layers.
DecoderSpec read_lfm2(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 65536,
                                          .hidden = 2560,
                                          .width = 12288,
                                          .heads = 32,
                                          .key_heads = 8,
                                          .positions = 128000,
                                          .eps = 1e-5,
                                          .theta = 1000000,
                                          .padding = 0,
                                          .tied = true,
                                          .activation_key = "",
                                          .eps_key = "norm_eps"});
  spec.tied = reader.flag("tie_embedding", spec.tied);  // the older name has priority, as in transformers
  spec.names = lfm2_names();
  const auto attends = attending_layers(reader, spec.layers.size());
  const auto convolution = std::make_shared<const ShortConvolution>(ShortConvolutionSizes{
      .channels = spec.hidden, .kernel = reader.size("conv_L_cache", 3), .bias = reader.flag("conv_bias", false)});
  const std::int64_t width = mlp_width(reader);
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
    LayerSpec& one = spec.layers[layer];
    one.attention.head_norm = spec.norm;
    one.mlp.width = width;
    if (!attends[layer]) one.mixer = convolution;
  }
  return spec;
}

}  // namespace

DecoderFamily lfm2_family() {
  DecoderFamily family{.model_type = "lfm2", .architecture = "Lfm2ForCausalLM", .read = read_lfm2};
  family.harmless = {"block_dim",
                     "block_mlp_init_scale",
                     "block_norm_eps",
                     "block_out_init_scale",
                     "block_use_swiglu",
                     "block_use_xavier_init",
                     "conv_dim",
                     "conv_dim_out",
                     "conv_use_xavier_init",
                     "num_heads",
                     "theta",
                     "use_pos_enc"};
  family.small = small_keys();
  family.small.erase("head_dim");
  family.small["block_multiple_of"] = 16;
  family.small["layer_types"] = {"conv", "conv", "full_attention", "conv"};
  return family;
}

}  // namespace gantry::models

#include <cmath>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/mixers/rg_lru.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

using nlohmann::json;

// True for the layers with attention. The kinds in block_types repeat over all layers.
std::vector<bool> read_attending_layers(ConfigReader& reader, std::size_t layers) {
  const json missing = {"recurrent", "recurrent", "attention"};
  const json kinds = reader.has("block_types") ? reader.keys()["block_types"] : missing;
  const auto words = reader.words("block_types", kinds.size(), {"recurrent", "attention"});
  if (kinds.empty()) refuse_key("block_types", kinds, "a list of at least one word");
  std::vector<bool> attending;
  for (std::size_t layer = 0; layer < layers; ++layer) attending.push_back(kinds[layer % kinds.size()] == "attention");
  reader.decides("attending_layers", attending);
  return attending;
}

// transformers stores the factor of the embeddings in bfloat16: 8 significant bits.
double in_bfloat16(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8);
}

std::shared_ptr<const RgLru> read_recurrent_block(ConfigReader& reader, const DecoderSpec& spec) {
  const std::int64_t heads = spec.layers.front().attention.heads, width = reader.size("lru_width", spec.hidden);
  require_multiple_of_heads("lru_width", width, "num_attention_heads", heads);
  return std::make_shared<const RgLru>(RgLruSizes{.heads = heads,
                                                  .head_size = width / heads,
                                                  .kernel = reader.size("conv1d_width", 4, 2),
                                                  .activation = spec.layers.front().mlp.activation});
}

DecoderNames recurrent_gemma_names() {
  DecoderNames names;
  names.norm = "final_norm";
  names.input = "temporal_pre_norm";
  names.before_mlp = "channel_pre_norm";
  names.query = "temporal_block.q_proj";
  names.key = "temporal_block.k_proj";
  names.value = "temporal_block.v_proj";
  names.output = "temporal_block.o_proj";
  names.gate = "mlp_block.gate_proj";
  names.up = "mlp_block.up_proj";
  names.down = "mlp_block.down_proj";
  return names;
}

// Gated linear recurrences, and attention with windows in every third layer.
DecoderSpec read_recurrent_gemma(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 256000,
                                          .hidden = 2560,
                                          .width = 7680,
                                          .layers = 26,
                                          .heads = 10,
                                          .rotated = 0.5,
                                          .padding = 0,
                                          .tied = true,
                                          .activation_key = "hidden_activation",
                                          .activation = "gelu_pytorch_tanh"});
  spec.unlimited_positions = true;
  spec.names = recurrent_gemma_names();
  make_gemma(spec);
  spec.embedding_scale = in_bfloat16(spec.embedding_scale);
  spec.logit_soft_cap = reader.number("logits_soft_cap", 30, 1e-6, 1e6);
  const bool bias = reader.flag("attention_bias", false);
  const std::int64_t window = reader.size("attention_window_size", 2048);
  const auto attending = read_attending_layers(reader, spec.layers.size());
  const auto mixer = read_recurrent_block(reader, spec);
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    LayerSpec& layer = spec.layers[index];
    layer.attention.bias = bias;
    layer.attention.output_bias = true;
    layer.attention.window = window;
    layer.mlp.width /= 2;  // intermediate_size counts the gate and its factor
    layer.mlp.bias = true;
    if (!attending[index]) layer.mixer = mixer;
  }
  return spec;
}

FileNames recurrent_gemma_files() {
  FileNames files;
  const std::string unit = "temporal_block.rg_lru.";
  for (const char* gate : {"input_gate", "recurrent_gate"})
    for (const char* parameter : {"weight", "bias"})
      files.renamed.emplace_back(unit + gate + "." + parameter, unit + gate + "_" + parameter);
  files.renamed.emplace_back(unit + "rate.recurrent_param", unit + "recurrent_param");
  return files;
}

}  // namespace

DecoderFamily recurrent_gemma_family() {
  return {.model_type = "recurrent_gemma",
          .architecture = "RecurrentGemmaForCausalLM",
          .read = read_recurrent_gemma,
          .files = recurrent_gemma_files(),
          // Variances of initial weights; the first key states what all published models do. transformers derives the
          // kinds of layers from block_types.
          .harmless = {"embeddings_scale_by_sqrt_dim", "final_w_init_variance_scale", "layer_types",
                       "layers_block_type", "w_init_variance_scale"},
          .small = {{"vocab_size", 256},
                    {"hidden_size", 64},
                    {"intermediate_size", 352},
                    {"num_hidden_layers", 6},
                    {"num_attention_heads", 4},
                    {"num_key_value_heads", 1},
                    {"attention_window_size", 64}}};
}

}  // namespace gantry::models

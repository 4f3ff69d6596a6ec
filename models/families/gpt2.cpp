#include <cmath>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

DecoderNames gpt2_names() {
  return {.tokens = "wte",
          .positions = "wpe",
          .dropout = "drop",
          .layers = "h",
          .norm = "ln_f",
          .head = "lm_head",
          .input = "ln_1",
          .fused = "attn.qkv",
          .output = "attn.proj",
          .attention_dropout = "attn.attn_dropout",
          .output_dropout = "attn.resid_dropout",
          .after_attention = "",
          .before_mlp = "ln_2",
          .up = "mlp.up",
          .down = "mlp.down",
          .fused_gate = "",
          .mlp_dropout = "mlp.dropout",
          .after_mlp = ""};
}

// Scores are divided by sqrt(head size), by the number of the layer, by both or by neither.
void read_scales(ConfigReader& reader, DecoderSpec& spec) {
  const bool by_size = reader.flag("scale_attn_weights", true);
  const bool by_layer = reader.flag("scale_attn_by_inverse_layer_idx", false);
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
    AttentionSpec& attention = spec.layers[layer].attention;
    if (by_size && !by_layer) continue;
    attention.scale = by_size ? 1 / std::sqrt(static_cast<double>(attention.head_size)) : 1;
    if (by_layer) attention.scale /= static_cast<double>(layer + 1);
  }
}

// Learned positions, layer norms, biases everywhere, an MLP without a gate.
DecoderSpec read_gpt2(ConfigReader& reader) {
  DecoderSpec spec;
  spec.vocabulary = reader.size("vocab_size", 50257);
  spec.positions = reader.size("n_positions", 1024);
  reader.decides("n_positions", spec.positions);
  spec.learned_positions = true;
  spec.hidden = reader.size("n_embd", 768);
  const NormSpec norm{NormSpec::Kind::kLayer, reader.number("layer_norm_epsilon", 1e-5, 0, 1)};
  LayerSpec layer{
      .input = norm, .after_attention = {}, .before_mlp = norm, .after_mlp = {}, .attention = {}, .mlp = {}};
  AttentionSpec& attention = layer.attention;
  attention.heads = attention.key_heads = reader.size("n_head", 12);
  require_multiple_of_heads("n_embd", spec.hidden, "n_head", attention.heads);
  attention.head_size = spec.hidden / attention.heads;
  attention.rows = ProjectionRows::kSegments;
  attention.bias = attention.output_bias = true;
  attention.dropout = reader.number("attn_pdrop", 0.1, 0, 1);
  layer.mlp.width = size_key(reader.keys(), "n_inner", 4 * spec.hidden);
  reader.ignore("n_inner");
  reader.decides("n_inner", layer.mlp.width);
  layer.mlp.bias = true;
  layer.mlp.activation = reader.activation("activation_function", "gelu_new");
  spec.layers.assign(static_cast<std::size_t>(reader.size("n_layer", 12)), layer);
  read_scales(reader, spec);
  spec.norm = norm;
  spec.embedding_dropout = reader.number("embd_pdrop", 0.1, 0, 1);
  spec.output_dropout = reader.number("resid_pdrop", 0.1, 0, 1);
  spec.initializer_range = reader.number("initializer_range", 0.02, 0, 100);
  spec.initial_by_depth = true;
  spec.tied = reader.flag("tie_word_embeddings", true);
  spec.names = gpt2_names();
  return spec;
}

}  // namespace

DecoderFamily gpt2_family() {
  return {.model_type = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .read = read_gpt2,
          .files = {.prefix = "transformer.",
                    .head = "lm_head",
                    .renamed = {{"attn.qkv", "attn.c_attn"},
                                {"attn.proj", "attn.c_proj"},
                                {"mlp.up", "mlp.c_fc"},
                                {"mlp.down", "mlp.c_proj"}},
                    .transposed = {"attn.qkv", "attn.proj", "mlp.up", "mlp.down"},
                    .ignored = {".attn.bias", ".attn.masked_bias"}},
          .harmless = {"n_ctx", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
                       "summary_proj_to_labels", "summary_type", "summary_use_proj"},
          .small = {{"vocab_size", 256}, {"n_embd", 64}, {"n_layer", 4}, {"n_head", 4}, {"n_positions", 256}}};
}

}  // namespace gantry::models

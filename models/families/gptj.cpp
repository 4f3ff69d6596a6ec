#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

DecoderNames gptj_names() {
  return {.tokens = "wte",
          .positions = "",
          .dropout = "drop",
          .layers = "h",
          .norm = "ln_f",
          .input = "ln_1",
          .query = "attn.q_proj",
          .key = "attn.k_proj",
          .value = "attn.v_proj",
          .fused = "",
          .output = "attn.out_proj",
          .attention_dropout = "attn.attn_dropout",
          .output_dropout = "attn.resid_dropout",
          .after_attention = "",
          .up = "mlp.fc_in",
          .down = "mlp.fc_out",
          .fused_gate = "",
          .mlp_dropout = "mlp.dropout",
          .after_mlp = ""};
}

AttentionSpec read_gptj_attention(ConfigReader& reader, std::int64_t hidden) {
  AttentionSpec attention;
  attention.heads = attention.key_heads = reader.size("n_head", 16);
  require_multiple_of_heads("n_embd", hidden, "n_head", attention.heads);
  attention.head_size = hidden / attention.heads;
  attention.rotary = 0;
  attention.dropout = reader.number("attn_pdrop", 0, 0, 1);
  return attention;
}

// Attention and MLP in parallel after one norm. The first features of a head are rotated in adjacent pairs.
DecoderSpec read_gptj(ConfigReader& reader) {
  DecoderSpec spec;
  spec.vocabulary = reader.size("vocab_size", 50400);
  spec.positions = reader.size("n_positions", 2048);
  spec.hidden = reader.size("n_embd", 4096);
  LayerSpec layer;
  layer.input = {NormSpec::Kind::kLayer, reader.number("layer_norm_epsilon", 1e-5, 0, 1)};
  layer.parallel = true;
  layer.attention = read_gptj_attention(reader, spec.hidden);
  layer.mlp.width = size_key(reader.keys(), "n_inner", 4 * spec.hidden);
  reader.ignore("n_inner");
  reader.decides("n_inner", layer.mlp.width);
  layer.mlp.bias = true;
  layer.mlp.activation = reader.activation("activation_function", "gelu_new");
  const std::int64_t rotated = reader.size("rotary_dim", 64, 2);
  if (rotated % 2 != 0 || rotated > layer.attention.head_size)
    refuse_key("rotary_dim", rotated, "an even number of at most " + std::to_string(layer.attention.head_size));
  spec.rotaries = {{.rotated = rotated, .paired = true}};
  spec.layers.assign(static_cast<std::size_t>(reader.size("n_layer", 28)), layer);
  spec.norm = layer.input;
  spec.embedding_dropout = reader.number("embd_pdrop", 0, 0, 1);
  spec.output_dropout = reader.number("resid_pdrop", 0, 0, 1);
  spec.initializer_range = reader.number("initializer_range", 0.02, 0, 100);
  spec.tied = reader.flag("tie_word_embeddings", false);
  spec.head_bias = true;
  spec.names = gptj_names();
  return spec;
}

}  // namespace

DecoderFamily gptj_family() {
  return {
      .model_type = "gptj",
      .architecture = "GPTJForCausalLM",
      .read = read_gptj,
      .files = {.prefix = "transformer.",
                .head = "lm_head",
                .renamed = {},
                .transposed = {},
                .ignored = {".attn.bias", ".attn.masked_bias"}},
      .harmless = {"summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
                   "summary_use_proj", "rotary", "scale_attn_weights", "gradient_checkpointing"},
      .small = {
          {"vocab_size", 256}, {"n_embd", 64}, {"n_layer", 4}, {"n_head", 4}, {"n_positions", 256}, {"rotary_dim", 8}}};
}

}  // namespace gantry::models

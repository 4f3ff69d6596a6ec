#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/rotary_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// A quarter of each head is rotated. rotary_pct and rotary_emb_base are this family's names of the keys. transformers
// reads the usual ones only in rope_parameters.
nn::RotaryOptions read_neox_rotary(ConfigReader& reader, std::int64_t head_size, std::int64_t positions) {
  reader.ignore("rotary_pct");
  reader.ignore("rotary_emb_base");
  const double theta = number_key(reader.keys(), "rotary_emb_base", 10000, 1, 1e12),
               fraction = number_key(reader.keys(), "rotary_pct", 0.25, 0, 1.0001);
  reader.only("rope_theta", theta, "outside of rope_parameters, the family has rotary_emb_base");
  reader.only("partial_rotary_factor", fraction, "outside of rope_parameters, the family has rotary_pct");
  return rotary_options(reader, head_size, positions, {.theta = theta, .fraction = fraction});
}

// Layer norms, one projection for query, key and value with rows head by head, and attention in parallel with
// the MLP.
DecoderSpec read_gpt_neox(ConfigReader& reader) {
  DecoderSpec spec;
  spec.vocabulary = reader.size("vocab_size", 50432);
  spec.hidden = reader.size("hidden_size", 6144);
  spec.positions = reader.size("max_position_embeddings", 2048);
  const NormSpec norm{NormSpec::Kind::kLayer, reader.number("layer_norm_eps", 1e-5, 0, 1)};
  LayerSpec layer{
      .input = norm, .after_attention = {}, .before_mlp = norm, .after_mlp = {}, .attention = {}, .mlp = {}};
  layer.parallel = reader.flag("use_parallel_residual", true);
  AttentionSpec& attention = layer.attention;
  attention.heads = attention.key_heads = reader.size("num_attention_heads", 64);
  require_multiple_of_heads("hidden_size", spec.hidden, "num_attention_heads", attention.heads);
  attention.head_size = spec.hidden / attention.heads;
  attention.rows = ProjectionRows::kPerHead;
  attention.bias = attention.output_bias = reader.flag("attention_bias", true);
  attention.dropout = reader.number("attention_dropout", 0, 0, 1);
  attention.rotary = 0;
  spec.rotaries = {read_neox_rotary(reader, attention.head_size, spec.positions)};
  spec.unlimited_positions = spec.rotaries[0].type == "dynamic";
  layer.mlp.width = reader.size("intermediate_size", 24576);
  layer.mlp.bias = true;
  layer.mlp.activation = reader.activation("hidden_act", "gelu");
  spec.layers.assign(static_cast<std::size_t>(reader.size("num_hidden_layers", 44)), layer);
  spec.norm = norm;
  spec.embedding_dropout = spec.output_dropout = reader.number("hidden_dropout", 0, 0, 1);
  spec.initializer_range = reader.number("initializer_range", 0.02, 0, 100);
  spec.tied = reader.flag("tie_word_embeddings", false);
  spec.names = {.tokens = "embed_in",
                .positions = "",
                .dropout = "emb_dropout",
                .norm = "final_layer_norm",
                .head = "embed_out",
                .fused = "attention.query_key_value",
                .output = "attention.dense",
                .attention_dropout = "attention.dropout",
                .output_dropout = "post_attention_dropout",
                .after_attention = "",
                .up = "mlp.dense_h_to_4h",
                .down = "mlp.dense_4h_to_h",
                .fused_gate = "",
                .mlp_dropout = "post_mlp_dropout",
                .after_mlp = ""};
  return spec;
}

}  // namespace

DecoderFamily gpt_neox_family() {
  return {.model_type = "gpt_neox",
          .architecture = "GPTNeoXForCausalLM",
          .read = read_gpt_neox,
          .files = {.prefix = "gpt_neox.",
                    .head = "embed_out",
                    .renamed = {},
                    .transposed = {},
                    .ignored = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"}},
          .harmless = {"classifier_dropout"},
          .small = {{"vocab_size", 256},
                    {"hidden_size", 64},
                    {"intermediate_size", 256},
                    {"num_hidden_layers", 4},
                    {"num_attention_heads", 4},
                    {"max_position_embeddings", 256}}};
}

}  // namespace gantry::models

#include <bit>
#include <cmath>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/rotary_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

DecoderNames falcon_names() {
  return {.tokens = "word_embeddings",
          .positions = "",
          .dropout = "",
          .layers = "h",
          .norm = "ln_f",
          .fused = "self_attention.query_key_value",
          .output = "self_attention.dense",
          .attention_dropout = "self_attention.attention_dropout",
          .output_dropout = "self_attention.hidden_dropout",
          .after_attention = "",
          .up = "mlp.dense_h_to_4h",
          .down = "mlp.dense_4h_to_h",
          .fused_gate = "",
          .mlp_dropout = "mlp.hidden_dropout",
          .after_mlp = ""};
}

double rounded_to_bfloat16(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return std::bit_cast<float>((bits + 0x7fffu + ((bits >> 16) & 1)) & 0xffff0000u);
}

// Newer files have groups of query heads. The first files have one KV head, or as many KV heads as query
// heads.
void read_rows(ConfigReader& reader, AttentionSpec& attention, bool is_new) {
  const std::int64_t key_heads = reader.size("num_kv_heads", attention.heads);
  const bool one_key_head = reader.flag("multi_query", true);
  attention.key_heads = is_new ? key_heads : one_key_head ? 1 : attention.heads;
  attention.rows = is_new         ? ProjectionRows::kPerGroup
                   : one_key_head ? ProjectionRows::kSegments
                                  : ProjectionRows::kPerHead;
  if (attention.heads % attention.key_heads != 0)
    refuse_key("num_kv_heads", attention.key_heads,
               "a divisor of num_attention_heads " + std::to_string(attention.heads));
}

void read_positions(ConfigReader& reader, DecoderSpec& spec, AttentionSpec& attention) {
  const auto size = static_cast<double>(attention.head_size);
  spec.rotaries = {rotary_options(reader, attention.head_size, spec.positions)};
  if (!reader.flag("alibi", false)) {
    attention.rotary = 0;
    return;
  }
  // As in the training of these models: slopes are rounded, and added before the scores are scaled.
  attention.slopes = alibi_slopes(attention.heads);
  for (double& slope : attention.slopes) slope = rounded_to_bfloat16(slope) / std::sqrt(size);
  spec.unlimited_positions = true;
}

void read_norms(ConfigReader& reader, DecoderSpec& spec, LayerSpec& layer, bool is_new) {
  const NormSpec norm{NormSpec::Kind::kLayer, reader.number("layer_norm_epsilon", 1e-5, 0, 1)};
  const std::int64_t in_parallel = reader.size("num_ln_in_parallel_attn", is_new ? 2 : 1);
  layer.parallel = reader.flag("parallel_attn", true) || is_new;
  layer.input = spec.norm = norm;
  if (!layer.parallel || (is_new && in_parallel == 2)) layer.before_mlp = norm;
  if (is_new && in_parallel == 2) {
    spec.names.input = "ln_attn";
    spec.names.before_mlp = "ln_mlp";
  }
}

// Attention and MLP in parallel in most models, rotary embedding or ALiBi, and three layouts of fused rows.
DecoderSpec read_falcon(ConfigReader& reader) {
  DecoderSpec spec;
  spec.names = falcon_names();
  spec.vocabulary = reader.size("vocab_size", 65024);
  spec.hidden = reader.size("hidden_size", 4544);
  spec.positions = reader.size("max_position_embeddings", 2048);
  LayerSpec layer;
  AttentionSpec& attention = layer.attention;
  attention.heads = reader.size("num_attention_heads", 71);
  require_multiple_of_heads("hidden_size", spec.hidden, "num_attention_heads", attention.heads);
  attention.head_size = spec.hidden / attention.heads;
  const bool is_new = reader.flag("new_decoder_architecture", false);
  read_rows(reader, attention, is_new);
  read_positions(reader, spec, attention);
  read_norms(reader, spec, layer, is_new);
  attention.bias = attention.output_bias = layer.mlp.bias = reader.flag("bias", false);
  attention.dropout = reader.number("attention_dropout", 0, 0, 1);
  layer.mlp.width = size_key(reader.keys(), "ffn_hidden_size", 4 * spec.hidden);
  reader.ignore("ffn_hidden_size");
  reader.decides("ffn_hidden_size", layer.mlp.width);
  layer.mlp.activation = reader.activation("activation", "gelu");
  spec.layers.assign(static_cast<std::size_t>(reader.size("num_hidden_layers", 32)), layer);
  spec.output_dropout = reader.number("hidden_dropout", 0, 0, 1);
  spec.initializer_range = reader.number("initializer_range", 0.02, 0, 100);
  spec.tied = reader.flag("tie_word_embeddings", true);
  return spec;
}

}  // namespace

DecoderFamily falcon_family() {
  return {.model_type = "falcon",
          .architecture = "FalconForCausalLM",
          .read = read_falcon,
          .files = {.prefix = "transformer.", .head = "lm_head", .renamed = {}, .transposed = {}},
          .small = {{"vocab_size", 256},
                    {"hidden_size", 64},
                    {"num_hidden_layers", 4},
                    {"num_attention_heads", 4},
                    {"max_position_embeddings", 256}}};
}

}  // namespace gantry::models

#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

DecoderNames bloom_names() {
  return {.tokens = "word_embeddings",
          .positions = "",
          .dropout = "",
          .embedding_norm = "word_embeddings_layernorm",
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

// Layer norms, one also after the embedding, ALiBi in place of positions, rows of query, key and value head
// by head.
DecoderSpec read_bloom(ConfigReader& reader) {
  DecoderSpec spec;
  spec.vocabulary = reader.size("vocab_size", 250880);
  spec.hidden = reader.size("hidden_size", 64);
  spec.positions = size_key(reader.keys(), "seq_length", 2048);
  spec.unlimited_positions = true;
  const NormSpec norm{NormSpec::Kind::kLayer, reader.number("layer_norm_epsilon", 1e-5, 0, 1)};
  reader.only("apply_residual_connection_post_layernorm", false, "Gantry adds the input of the layer norm");
  if (size_key(reader.keys(), "pretraining_tp", 1) > 1)
    reader.only("slow_but_exact", false, "with pretraining_tp above 1, transformers then leaves out biases");
  LayerSpec layer;
  layer.input = layer.before_mlp = norm;
  AttentionSpec& attention = layer.attention;
  attention.heads = attention.key_heads = reader.size("n_head", 8);
  require_multiple_of_heads("hidden_size", spec.hidden, "n_head", attention.heads);
  attention.head_size = spec.hidden / attention.heads;
  attention.rows = ProjectionRows::kPerHead;
  attention.bias = attention.output_bias = true;
  attention.slopes = alibi_slopes(attention.heads);
  attention.dropout = reader.number("attention_dropout", 0, 0, 1);
  layer.mlp = {.width = 4 * spec.hidden, .bias = true, .activation = "gelu_pytorch_tanh"};
  spec.layers.assign(static_cast<std::size_t>(reader.size("n_layer", 2)), layer);
  spec.norm = spec.embedding_norm = norm;
  spec.output_dropout = reader.number("hidden_dropout", 0, 0, 1);
  spec.initializer_range = reader.number("initializer_range", 0.02, 0, 100);
  spec.tied = reader.flag("tie_word_embeddings", true);
  spec.names = bloom_names();
  return spec;
}

}  // namespace

DecoderFamily bloom_family() {
  return {.model_type = "bloom",
          .architecture = "BloomForCausalLM",
          .read = read_bloom,
          .files = {.prefix = "transformer.", .head = "lm_head", .renamed = {}, .transposed = {}, .ignored = {}},
          .harmless = {"seq_length", "slow_but_exact", "pretraining_tp", "masked_softmax_fusion", "n_inner",
                       "offset_alibi", "skip_bias_add", "skip_bias_add_qkv", "attention_softmax_in_fp32",
                       "bias_dropout_fusion", "unk_token_id"},
          .small = {{"vocab_size", 256}, {"hidden_size", 64}, {"n_layer", 4}, {"n_head", 4}}};
}

}  // namespace gantry::models

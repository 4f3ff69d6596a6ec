#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

DecoderNames opt_names() {
  return {.tokens = "embed_tokens",
          .positions = "embed_positions",
          .dropout = "",
          .layers = "layers",
          .norm = "final_layer_norm",
          .input = "self_attn_layer_norm",
          .output = "self_attn.out_proj",
          .output_dropout = "self_attn.output_dropout",
          .after_attention = "",
          .before_mlp = "final_layer_norm",
          .up = "fc1",
          .down = "fc2",
          .fused_gate = "",
          .mlp_dropout = "dropout",
          .after_mlp = ""};
}

// Learned positions that begin at row 2, layer norms, biases, an MLP without a gate. OPT-350m has its norms
// after the sums, no norm at the end, and an embedding that is narrower than its layers.
DecoderSpec read_opt(ConfigReader& reader) {
  DecoderSpec spec;
  spec.vocabulary = reader.size("vocab_size", 50272);
  spec.hidden = reader.size("hidden_size", 768);
  spec.positions = reader.size("max_position_embeddings", 2048);
  spec.learned_positions = true;
  spec.position_offset = 2;
  reader.decides("positions", spec.positions);
  const bool norms_before = reader.flag("do_layer_norm_before", true);
  const bool removes_last = reader.flag("_remove_final_layer_norm", false);
  reader.only("layer_norm_elementwise_affine", true, "OPT's layer norms have parameters in Gantry");
  const std::int64_t columns = reader.size("word_embed_proj_dim", spec.hidden);
  if (columns != spec.hidden) spec.embedding_width = columns;
  reader.only("layerdrop", 0.0, "Gantry does not drop layers in training");
  const NormSpec norm{NormSpec::Kind::kLayer, 1e-5};
  LayerSpec layer;
  layer.input = layer.before_mlp = norm;
  layer.post_norm = !norms_before;
  AttentionSpec& attention = layer.attention;
  attention.heads = attention.key_heads = reader.size("num_attention_heads", 12);
  require_multiple_of_heads("hidden_size", spec.hidden, "num_attention_heads", attention.heads);
  attention.head_size = spec.hidden / attention.heads;
  attention.bias = attention.output_bias = layer.mlp.bias = reader.flag("enable_bias", true);
  attention.dropout = reader.number("attention_dropout", 0, 0, 1);
  layer.mlp.width = reader.size("ffn_dim", 3072);
  layer.mlp.activation = reader.activation("activation_function", "relu");
  spec.layers.assign(static_cast<std::size_t>(reader.size("num_hidden_layers", 12)), layer);
  if (norms_before && !removes_last) spec.norm = norm;
  spec.output_dropout = reader.number("dropout", 0.1, 0, 1);
  spec.initializer_range = reader.number("init_std", 0.02, 0, 100);
  spec.tied = reader.flag("tie_word_embeddings", true);
  spec.padding = read_padding(reader, spec.vocabulary, 1);
  spec.names = opt_names();
  return spec;
}

}  // namespace

DecoderFamily opt_family() {
  return {.model_type = "opt",
          .architecture = "OPTForCausalLM",
          .read = read_opt,
          .files = {.prefix = "model.decoder."},
          .small = {{"vocab_size", 256},
                    {"hidden_size", 64},
                    {"ffn_dim", 256},
                    {"num_hidden_layers", 4},
                    {"num_attention_heads", 4},
                    {"max_position_embeddings", 256}}};
}

}  // namespace gantry::models

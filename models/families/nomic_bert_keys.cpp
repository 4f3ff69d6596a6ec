#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/encoder_configs.h"
#include "gantry/models/described/rotary_keys.h"

namespace gantry::models {
namespace {

// Published files describe the model by keys of their own, which also describe other models.
void refuse_nomic_variants(ConfigReader& reader) {
  const std::string reason = "transformers has no such NomicBERT";
  for (const char* key : {"causal", "parallel_block", "prenorm", "use_rms_norm", "qkv_proj_bias", "mlp_fc1_bias",
                          "mlp_fc2_bias", "rotary_emb_interleaved"})
    reader.only(key, false, reason);
  reader.only("rotary_emb_fraction", 1.0, reason);
  reader.only("num_experts", 0, reason);
  reader.only("rotary_scaling_factor", nullptr, reason);
}

// The activation_function of published files is another name of the default.
std::string read_nomic_activation(ConfigReader& reader) {
  if (!reader.has("hidden_act")) reader.only("activation_function", "swiglu", "transformers has no such NomicBERT");
  reader.ignore("activation_function");
  return reader.activation("hidden_act", "silu");
}

}  // namespace

// BERT with rotary positions, gated MLPs, and layers without biases.
BertConfig read_nomic_bert(ConfigReader& reader) {
  BertConfig config{.family = "nomic_bert", .fused = true};
  refuse_nomic_variants(reader);
  config.vocab_size = reader.size("vocab_size", config.vocab_size);
  config.hidden_size = reader.size("hidden_size", config.hidden_size);
  config.num_hidden_layers = reader.size("num_hidden_layers", config.num_hidden_layers);
  config.num_attention_heads = reader.size("num_attention_heads", config.num_attention_heads);
  reader.only("num_key_value_heads", config.num_attention_heads, "each head of NomicBERT has a key of its own");
  config.intermediate_size = reader.size("intermediate_size", config.intermediate_size);
  config.max_position_embeddings = reader.size("max_position_embeddings", 2048);
  config.type_vocab_size = reader.size("type_vocab_size", config.type_vocab_size);
  config.pad_token_id = read_padding_token(reader, 0, config.vocab_size);
  config.hidden_act = read_nomic_activation(reader);
  config.hidden_dropout_prob = reader.number("hidden_dropout_prob", 0, 0, 1);
  config.attention_probs_dropout_prob = reader.number("attention_probs_dropout_prob", 0, 0, 1);
  config.attention_output_dropout = config.mlp_output_dropout = config.attention_probs_dropout_prob;
  reader.ignore("classifier_dropout");
  config.classifier_dropout = number_key(reader.keys(), "classifier_dropout", config.hidden_dropout_prob, 0, 1);
  config.layer_norm_eps = reader.number("layer_norm_eps", 1e-12, 0, 1);
  config.initializer_range = reader.number("initializer_range", config.initializer_range, 0, 100);
  config.tie_word_embeddings = reader.flag("tie_word_embeddings", true);
  read_text_head(reader, config, "NomicBert");
  if (!reader.has("head_dim"))
    require_multiple_of_heads("hidden_size", config.hidden_size, "num_attention_heads", config.num_attention_heads);
  config.head_dim = reader.size("head_dim", config.head_size());
  constexpr double kBase = 1000;
  if (!reader.has("rope_theta") && !reader.has("rope_parameters"))
    reader.only("rotary_emb_base", kBase, "transformers does not read it");
  reader.ignore("rotary_emb_base");
  config.rotary = rotary_options(reader, config.head_dim, config.max_position_embeddings, {.theta = kBase});
  return config;
}

}  // namespace gantry::models

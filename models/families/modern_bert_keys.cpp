#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/encoder_configs.h"
#include "gantry/models/described/rotary_keys.h"

namespace gantry::models {
namespace {

using nlohmann::json;

// A layer of a window attends to tokens that are at most half of local_attention away.
void read_modern_layers(ConfigReader& reader, ModernBertConfig& config) {
  const std::int64_t window = reader.size("local_attention", 128) / 2 + 1;
  const std::int64_t period = size_key(reader.keys(), "global_attn_every_n_layers", 3);
  reader.ignore("global_attn_every_n_layers");
  const auto types = reader.words("layer_types", static_cast<std::size_t>(config.bert.num_hidden_layers),
                                  {"full_attention", "sliding_attention"});
  for (std::int64_t layer = 0; layer < config.bert.num_hidden_layers; ++layer) {
    const bool is_local = types.empty() ? layer % period != 0 : types[layer] == "sliding_attention";
    config.windows.push_back(is_local ? window : 0);
  }
  reader.decides("windows", config.windows);
}

// Older files have a base for each kind of layers, newer ones a mapping.
void read_modern_rotary(ConfigReader& reader, ModernBertConfig& config) {
  const auto read = [&](const char* key, double theta, const char* layers) {
    reader.ignore(key);
    const double base = number_key(reader.keys(), key, theta, 1, 1e12);
    return rotary_options(reader, config.bert.hidden_size / config.bert.num_attention_heads,
                          config.bert.max_position_embeddings, {.theta = base, .of_each_kind = true}, layers);
  };
  config.rotary = read("global_rope_theta", 160000, "full_attention");
  config.local_rotary = read("local_rope_theta", 10000, "sliding_attention");
}

void read_modern_head(ConfigReader& reader, ModernBertConfig& config) {
  read_text_head(reader, config.bert, "ModernBert");
  config.bert.classifier_dropout = reader.number("classifier_dropout", 0, 0, 1);
  config.classifier_bias = reader.flag("classifier_bias", false);
  config.classifier_activation = reader.activation("classifier_activation", "gelu");
  config.mean_pooling = reader.choice("classifier_pooling", "cls", {"cls", "mean"}) == "mean";
  config.decoder_bias = reader.flag("decoder_bias", true);
  config.bert.tie_word_embeddings = reader.flag("tie_word_embeddings", true);
}

}  // namespace

ModernBertConfig read_modern_bert(ConfigReader& reader) {
  ModernBertConfig config;
  BertConfig& bert = config.bert;
  bert.family = "modernbert";
  bert.vocab_size = reader.size("vocab_size", 50368);
  bert.hidden_size = reader.size("hidden_size", bert.hidden_size);
  bert.num_hidden_layers = reader.size("num_hidden_layers", 22);
  bert.num_attention_heads = reader.size("num_attention_heads", bert.num_attention_heads);
  bert.intermediate_size = reader.size("intermediate_size", 1152);
  bert.max_position_embeddings = reader.size("max_position_embeddings", 8192);
  bert.pad_token_id = read_padding_token(reader, 50283, bert.vocab_size);
  bert.hidden_act = reader.activation("hidden_activation", "gelu");
  bert.hidden_dropout_prob = reader.number("embedding_dropout", 0, 0, 1);
  bert.attention_probs_dropout_prob = reader.number("attention_dropout", 0, 0, 1);
  config.mlp_dropout = reader.number("mlp_dropout", 0, 0, 1);
  bert.layer_norm_eps = reader.number("norm_eps", 1e-5, 0, 1);
  bert.initializer_range = reader.number("initializer_range", bert.initializer_range, 0, 100);
  config.attention_bias = reader.flag("attention_bias", false);
  config.mlp_bias = reader.flag("mlp_bias", false);
  config.norm_bias = reader.flag("norm_bias", false);
  require_multiple_of_heads("hidden_size", bert.hidden_size, "num_attention_heads", bert.num_attention_heads);
  read_modern_layers(reader, config);
  read_modern_rotary(reader, config);
  read_modern_head(reader, config);
  reader.only("sparse_pred_ignore_index", -100, "labels of -100 are those that do not count");
  return config;
}

}  // namespace gantry::models

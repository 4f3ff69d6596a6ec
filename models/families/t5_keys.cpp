#include <fmt/format.h>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/encoder_configs.h"
#include "gantry/nn/activation_names.h"

namespace gantry::models {
namespace {

// "relu", or "gated-gelu", which is the tanh approximation of gelu.
void read_t5_mlp(ConfigReader& reader, T5Config& config) {
  const std::string gated = "gated-", missing = config.gated ? "gated-gelu" : "relu";
  std::vector<std::string> known = nn::activation_names();
  for (const auto& name : nn::activation_names()) known.push_back(gated + name);
  const std::string named = reader.choice("feed_forward_proj", missing, known);
  config.gated = named.starts_with(gated);
  config.activation = config.gated ? named.substr(gated.size()) : named;
  if (named == "gated-gelu") config.activation = "gelu_new";
  // transformers writes these two from feed_forward_proj, and does not read them.
  reader.only("is_gated_act", config.gated);
  reader.only("dense_act_fn", config.activation);
}

void read_t5_buckets(ConfigReader& reader, T5Config& config) {
  config.relative_attention_num_buckets = reader.size("relative_attention_num_buckets", 32, 4);
  config.relative_attention_max_distance = reader.size("relative_attention_max_distance", 128);
  if (config.relative_attention_num_buckets % 2 != 0)
    refuse_key("relative_attention_num_buckets", config.relative_attention_num_buckets, "an even number");
  if (2 * config.relative_attention_max_distance <= config.relative_attention_num_buckets)
    refuse_key(
        "relative_attention_max_distance", config.relative_attention_max_distance,
        fmt::format("more than half of relative_attention_num_buckets {}", config.relative_attention_num_buckets));
}

T5Config read_t5_like(ConfigReader& reader, T5Config config) {
  reader.only("is_encoder_decoder", true);
  config.vocab_size = reader.size("vocab_size", config.vocab_size);
  config.d_model = reader.size("d_model", config.d_model);
  config.d_kv = reader.size("d_kv", config.d_kv);
  config.d_ff = reader.size("d_ff", config.d_ff);
  config.num_layers = reader.size("num_layers", config.num_layers);
  config.num_decoder_layers = reader.size("num_decoder_layers", config.num_layers);
  config.num_heads = reader.size("num_heads", config.num_heads);
  read_t5_buckets(reader, config);
  read_t5_mlp(reader, config);
  config.pad_token_id = reader.token("pad_token_id", 0, config.vocab_size);
  config.decoder_start_token_id = reader.token("decoder_start_token_id", 0, config.vocab_size);
  config.dropout_rate = reader.number("dropout_rate", config.dropout_rate, 0, 1);
  config.layer_norm_epsilon = reader.number("layer_norm_epsilon", config.layer_norm_epsilon, 0, 1);
  config.initializer_factor = reader.number("initializer_factor", config.initializer_factor, 0, 100);
  config.tie_word_embeddings = reader.flag("tie_word_embeddings", true);
  config.separate_encoder_embedding = reader.flag("separate_encoder_embedding", false);
  config.separate_decoder_embedding = reader.flag("separate_decoder_embedding", false);
  // Keys of other heads and of older files.
  for (const char* key : {"classifier_dropout", "n_positions", "output_past"}) reader.ignore(key);
  return config;
}

}  // namespace

T5Config t5_defaults(const std::string& family) {
  if (family == "t5") return {};
  T5Config config{.family = family, .vocab_size = 250112, .d_ff = 1024, .num_layers = 8, .num_heads = 6, .gated = true};
  config.scale_decoder_outputs = config.bias_in_each_layer = family == "umt5";
  return config;
}

T5Config read_t5(ConfigReader& reader) {
  T5Config config = read_t5_like(reader, t5_defaults("t5"));
  // Without the key, the inputs of a tied head are scaled.
  config.scale_decoder_outputs = reader.flag("scale_decoder_outputs", config.tie_word_embeddings);
  return config;
}

// The scaling of the head's inputs does not depend on whether the head is tied, as in transformers 5.23: mT5
// never scales them, and umT5 does, unless the key says otherwise.
T5Config read_mt5(ConfigReader& reader) { return read_t5_like(reader, t5_defaults("mt5")); }
T5Config read_umt5(ConfigReader& reader) {
  T5Config config = read_t5_like(reader, t5_defaults("umt5"));
  config.scale_decoder_outputs = reader.flag("scale_decoder_outputs", true);
  return config;
}

}  // namespace gantry::models

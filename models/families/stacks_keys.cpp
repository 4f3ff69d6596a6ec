#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/encoder_configs.h"

namespace gantry::models {

void read_stacks(ConfigReader& reader, StacksConfig& config) {
  reader.only("is_encoder_decoder", true);
  for (const char* key : {"encoder_layerdrop", "decoder_layerdrop"})
    reader.only(key, 0.0, "Gantry does not drop layers in training");
  const auto read = [&](const char* key, std::int64_t& size) { size = reader.size(key, size); };
  const auto read_rate = [&](const char* key, double& rate) { rate = reader.number(key, rate, 0, 1); };
  read("vocab_size", config.vocab_size);
  read("d_model", config.d_model);
  read("encoder_layers", config.encoder_layers);
  read("encoder_attention_heads", config.encoder_attention_heads);
  read("encoder_ffn_dim", config.encoder_ffn_dim);
  read("decoder_layers", config.decoder_layers);
  read("decoder_attention_heads", config.decoder_attention_heads);
  read("decoder_ffn_dim", config.decoder_ffn_dim);
  require_multiple_of_heads("d_model", config.d_model, "encoder_attention_heads", config.encoder_attention_heads);
  require_multiple_of_heads("d_model", config.d_model, "decoder_attention_heads", config.decoder_attention_heads);
  config.pad_token_id = reader.token("pad_token_id", config.pad_token_id, config.vocab_size);
  config.decoder_start_token_id =
      reader.token("decoder_start_token_id", config.decoder_start_token_id, config.vocab_size);
  config.activation_function = reader.activation("activation_function", config.activation_function);
  read_rate("dropout", config.dropout);
  read_rate("attention_dropout", config.attention_dropout);
  read_rate("activation_dropout", config.activation_dropout);
  config.init_std = reader.number("init_std", config.init_std, 0, 100);
  config.tie_word_embeddings = reader.flag("tie_word_embeddings", config.tie_word_embeddings);
}

}  // namespace gantry::models

#include <fmt/format.h>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/encoder_configs.h"

namespace gantry::models {
namespace {

std::int64_t read_bart_heads(ConfigReader& reader, const std::string& key, const BartConfig& config) {
  const std::int64_t heads = reader.size(key, 16);
  if (config.d_model % heads != 0)
    refuse_key("d_model", config.d_model, fmt::format("a multiple of {} {}", key, heads));
  return heads;
}

// Older files state what all models of the class have.
void refuse_bart_variants(ConfigReader& reader) {
  for (const char* key : {"encoder_layerdrop", "decoder_layerdrop"})
    reader.only(key, 0.0, "Gantry does not drop layers in training");
  for (const char* key : {"add_bias_logits", "add_final_layer_norm", "do_blenderbot_90_layernorm", "normalize_before",
                          "static_position_embeddings"})
    reader.only(key, false, "it describes another model than BART");
  reader.only("normalize_embedding", true, "it describes another model than BART");
  reader.only("extra_pos_embeddings", 2, "it describes another model than BART");
  for (const char* key : {"separate_encoder_embedding", "separate_decoder_embedding"})
    reader.only(key, false, "encoder and decoder of BART share their embedding");
  for (const char* key :
       {"classifier_dropout", "classif_dropout", "force_bos_token_to_be_generated", "num_hidden_layers", "output_past"})
    reader.ignore(key);
}

}  // namespace

BartConfig read_bart(ConfigReader& reader) {
  BartConfig config;
  reader.only("is_encoder_decoder", true);
  refuse_bart_variants(reader);
  config.vocab_size = reader.size("vocab_size", config.vocab_size);
  config.max_position_embeddings = reader.size("max_position_embeddings", config.max_position_embeddings);
  config.d_model = reader.size("d_model", config.d_model);
  config.encoder_layers = reader.size("encoder_layers", config.encoder_layers);
  config.encoder_attention_heads = read_bart_heads(reader, "encoder_attention_heads", config);
  config.encoder_ffn_dim = reader.size("encoder_ffn_dim", config.encoder_ffn_dim);
  config.decoder_layers = reader.size("decoder_layers", config.decoder_layers);
  config.decoder_attention_heads = read_bart_heads(reader, "decoder_attention_heads", config);
  config.decoder_ffn_dim = reader.size("decoder_ffn_dim", config.decoder_ffn_dim);
  config.pad_token_id = reader.token("pad_token_id", config.pad_token_id, config.vocab_size);
  config.decoder_start_token_id =
      reader.token("decoder_start_token_id", config.decoder_start_token_id, config.vocab_size);
  config.activation_function = reader.activation("activation_function", "gelu");
  config.dropout = reader.number("dropout", config.dropout, 0, 1);
  config.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  config.activation_dropout = reader.number("activation_dropout", 0, 0, 1);
  config.init_std = reader.number("init_std", config.init_std, 0, 100);
  config.scale_embedding = reader.flag("scale_embedding", false);
  config.tie_word_embeddings = reader.flag("tie_word_embeddings", true);
  return config;
}

}  // namespace gantry::models

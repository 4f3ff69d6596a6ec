#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/encoder_configs.h"

namespace gantry::models {
namespace {

// Older files state the properties that all models of the class have. Those of Pegasus are called BART there, with
// other values.
void refuse_variants(ConfigReader& reader, const BartConfig& config) {
  const std::string name = config.name(), reason = "it describes another model than " + name;
  for (const char* key : {"add_bias_logits", "do_blenderbot_90_layernorm"}) reader.only(key, false, reason);
  for (const char* key : {"add_final_layer_norm", "normalize_before", "static_position_embeddings"})
    reader.only(key, config.norms_before, reason);
  reader.only("normalize_embedding", !config.norms_before, reason);
  if (config.norms_before)
    reader.ignore("extra_pos_embeddings");
  else
    reader.only("extra_pos_embeddings", config.first_position(), reason);
  for (const char* key : {"separate_encoder_embedding", "separate_decoder_embedding"})
    reader.only(key, false, "encoder and decoder of " + name + " share their embedding");
  for (const char* key : {"classifier_dropout", "classif_dropout", "force_bos_token_to_be_generated", "output_past"})
    reader.ignore(key);
  if (!config.norms_before) reader.ignore("num_hidden_layers");  // a spelling of encoder_layers in Pegasus
}

BartConfig read_with(ConfigReader& reader, BartConfig config) {
  refuse_variants(reader, config);
  read_stacks(reader, config);
  config.max_position_embeddings = reader.size("max_position_embeddings", config.max_position_embeddings);
  config.scale_embedding = reader.flag("scale_embedding", false);
  return config;
}

}  // namespace

BartConfig::BartConfig()
    : StacksConfig{.vocab_size = 50265,
                   .d_model = 1024,
                   .encoder_layers = 12,
                   .encoder_attention_heads = 16,
                   .encoder_ffn_dim = 4096,
                   .decoder_layers = 12,
                   .decoder_attention_heads = 16,
                   .decoder_ffn_dim = 4096,
                   .pad_token_id = 1,
                   .decoder_start_token_id = 2,
                   .dropout = 0.1} {}

BartConfig read_bart(ConfigReader& reader) { return read_with(reader, {}); }

BartConfig read_pegasus(ConfigReader& reader) {
  BartConfig config;
  config.family = "pegasus";
  config.norms_before = true;
  config.pad_token_id = config.decoder_start_token_id = 0;
  return read_with(reader, config);
}

}  // namespace gantry::models

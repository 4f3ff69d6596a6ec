#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/encoder_configs.h"

namespace gantry::models {
namespace {

// Older files state what all models of the class have.
void refuse_bart_variants(ConfigReader& reader) {
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

BartConfig read_bart(ConfigReader& reader) {
  BartConfig config;
  refuse_bart_variants(reader);
  read_stacks(reader, config);
  config.max_position_embeddings = reader.size("max_position_embeddings", config.max_position_embeddings);
  config.scale_embedding = reader.flag("scale_embedding", false);
  return config;
}

}  // namespace gantry::models

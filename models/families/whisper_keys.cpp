#include <fmt/format.h>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/encoder_configs.h"

namespace gantry::models {
namespace {

std::int64_t read_whisper_heads(ConfigReader& reader, const std::string& key, const WhisperConfig& config) {
  const std::int64_t heads = reader.size(key, 6);
  if (config.d_model % heads != 0)
    refuse_key("d_model", config.d_model, fmt::format("a multiple of {} {}", key, heads));
  return heads;
}

void refuse_whisper_extras(ConfigReader& reader) {
  reader.only("apply_spec_augment", false, "Gantry does not mask spectrograms in training");
  reader.only("encoder_layerdrop", 0.0, "Gantry does not drop layers in training");
  reader.only("decoder_layerdrop", 0.0, "Gantry does not drop layers in training");
  reader.only("scale_embedding", false, "Gantry does not scale Whisper's embedding");
  for (const char* key :
       {"classifier_proj_size", "mask_feature_length", "mask_feature_min_masks", "mask_feature_prob",
        "mask_time_length", "mask_time_min_masks", "mask_time_prob", "median_filter_width", "use_weighted_layer_sum"})
    reader.ignore(key);
}

}  // namespace

WhisperConfig read_whisper(ConfigReader& reader) {
  WhisperConfig config;
  reader.only("is_encoder_decoder", true);
  refuse_whisper_extras(reader);
  config.vocab_size = reader.size("vocab_size", config.vocab_size);
  config.num_mel_bins = reader.size("num_mel_bins", config.num_mel_bins);
  config.d_model = reader.size("d_model", config.d_model, 2);
  if (config.d_model % 2 != 0) refuse_key("d_model", config.d_model, "an even number");
  config.encoder_layers = reader.size("encoder_layers", config.encoder_layers);
  config.encoder_attention_heads = read_whisper_heads(reader, "encoder_attention_heads", config);
  config.encoder_ffn_dim = reader.size("encoder_ffn_dim", config.encoder_ffn_dim);
  config.decoder_layers = reader.size("decoder_layers", config.decoder_layers);
  config.decoder_attention_heads = read_whisper_heads(reader, "decoder_attention_heads", config);
  config.decoder_ffn_dim = reader.size("decoder_ffn_dim", config.decoder_ffn_dim);
  config.max_source_positions = reader.size("max_source_positions", config.max_source_positions);
  config.max_target_positions = reader.size("max_target_positions", config.max_target_positions);
  config.pad_token_id = reader.token("pad_token_id", config.pad_token_id, config.vocab_size);
  config.decoder_start_token_id =
      reader.token("decoder_start_token_id", config.decoder_start_token_id, config.vocab_size);
  config.activation_function = reader.activation("activation_function", "gelu");
  config.dropout = reader.number("dropout", config.dropout, 0, 1);
  config.attention_dropout = reader.number("attention_dropout", config.attention_dropout, 0, 1);
  config.activation_dropout = reader.number("activation_dropout", config.activation_dropout, 0, 1);
  config.init_std = reader.number("init_std", config.init_std, 0, 100);
  config.tie_word_embeddings = reader.flag("tie_word_embeddings", true);
  return config;
}

}  // namespace gantry::models

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/encoder_configs.h"

namespace gantry::models {
namespace {

void refuse_whisper_extras(ConfigReader& reader) {
  reader.only("apply_spec_augment", false, "Gantry does not mask spectrograms in training");
  reader.only("scale_embedding", false, "Gantry does not scale Whisper's embedding");
  for (const char* key :
       {"classifier_proj_size", "mask_feature_length", "mask_feature_min_masks", "mask_feature_prob",
        "mask_time_length", "mask_time_min_masks", "mask_time_prob", "median_filter_width", "use_weighted_layer_sum"})
    reader.ignore(key);
}

}  // namespace

WhisperConfig::WhisperConfig()
    : StacksConfig{.vocab_size = 51865,
                   .d_model = 384,
                   .encoder_layers = 4,
                   .encoder_attention_heads = 6,
                   .encoder_ffn_dim = 1536,
                   .decoder_layers = 4,
                   .decoder_attention_heads = 6,
                   .decoder_ffn_dim = 1536,
                   .pad_token_id = 50256,
                   .decoder_start_token_id = 50257} {}

WhisperConfig read_whisper(ConfigReader& reader) {
  WhisperConfig config;
  refuse_whisper_extras(reader);
  read_stacks(reader, config);
  if (config.d_model % 2 != 0) refuse_key("d_model", config.d_model, "an even number");
  config.num_mel_bins = reader.size("num_mel_bins", config.num_mel_bins);
  config.max_source_positions = reader.size("max_source_positions", config.max_source_positions);
  config.max_target_positions = reader.size("max_target_positions", config.max_target_positions);
  return config;
}

}  // namespace gantry::models

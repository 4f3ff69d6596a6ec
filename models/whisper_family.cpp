#include "gantry/models/whisper_family.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/keys_of_family.h"
#include "gantry/models/whisper.h"
#include "gantry/nn/activation_names.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

using nlohmann::json;

constexpr const char* kWhisper = "whisper";
constexpr const char* kWhisperArchitecture = "WhisperForConditionalGeneration";

std::int64_t whisper_heads(ConfigReader& reader, const std::string& key, const WhisperConfig& config) {
  const std::int64_t heads = reader.size(key, 6);
  if (config.d_model % heads != 0)
    refuse_key("d_model", config.d_model, fmt::format("a multiple of {} {}", key, heads));
  return heads;
}

// What changes numbers in training, and is not there.
void refuse_whisper_extras(ConfigReader& reader) {
  reader.only("apply_spec_augment", false);
  reader.only("encoder_layerdrop", 0.0);
  reader.only("decoder_layerdrop", 0.0);
  reader.only("scale_embedding", false);
  for (const char* key : {"classifier_proj_size", "forced_decoder_ids", "mask_feature_length", "mask_feature_min_masks",
                          "mask_feature_prob", "mask_time_length", "mask_time_min_masks", "mask_time_prob",
                          "median_filter_width", "use_weighted_layer_sum"})
    reader.ignore(key);
}

WhisperConfig read_whisper(ConfigReader& reader) {
  WhisperConfig config;
  reader.only("model_type", kWhisper);
  reader.only("architectures", json::array({kWhisperArchitecture}));
  reader.only("is_encoder_decoder", true);
  refuse_whisper_extras(reader);
  config.vocab_size = reader.size("vocab_size", config.vocab_size);
  config.num_mel_bins = reader.size("num_mel_bins", config.num_mel_bins);
  config.d_model = reader.size("d_model", config.d_model, 2);
  if (config.d_model % 2 != 0) refuse_key("d_model", config.d_model, "an even number");
  config.encoder_layers = reader.size("encoder_layers", config.encoder_layers);
  reader.only("num_hidden_layers", config.encoder_layers);  // transformers' other name of it
  config.encoder_attention_heads = whisper_heads(reader, "encoder_attention_heads", config);
  config.encoder_ffn_dim = reader.size("encoder_ffn_dim", config.encoder_ffn_dim);
  config.decoder_layers = reader.size("decoder_layers", config.decoder_layers);
  config.decoder_attention_heads = whisper_heads(reader, "decoder_attention_heads", config);
  config.decoder_ffn_dim = reader.size("decoder_ffn_dim", config.decoder_ffn_dim);
  config.max_source_positions = reader.size("max_source_positions", config.max_source_positions);
  config.max_target_positions = reader.size("max_target_positions", config.max_target_positions);
  config.pad_token_id = reader.token("pad_token_id", config.pad_token_id, config.vocab_size);
  config.decoder_start_token_id =
      reader.token("decoder_start_token_id", config.decoder_start_token_id, config.vocab_size);
  config.activation_function = reader.choice("activation_function", "gelu", nn::activation_names());
  config.dropout = reader.number("dropout", config.dropout, 0, 1);
  config.attention_dropout = reader.number("attention_dropout", config.attention_dropout, 0, 1);
  config.activation_dropout = reader.number("activation_dropout", config.activation_dropout, 0, 1);
  config.init_std = reader.number("init_std", config.init_std, 0, 100);
  config.tie_word_embeddings = reader.flag("tie_word_embeddings", true);
  return config;
}

WhisperConfig whisper_config(const json& keys) { return read_keys(keys, kWhisper, read_whisper); }

json whisper_hugging_face_config(const json& keys) {
  json whole = whole_config_of(keys, kWhisper, kWhisperArchitecture, read_whisper);
  whole["is_encoder_decoder"] = true;
  leave_out_tokens(whole);
  return whole;
}

class WhisperNames {
 public:
  void add(const std::string& name) { names_.push_back({name, "model." + name}); }
  void add_both(const std::string& path) {
    add(path + ".weight");
    add(path + ".bias");
  }
  void add_attention(const std::string& path) {
    add(path + ".k_proj.weight");
    for (const char* part : {".v_proj", ".q_proj", ".out_proj"}) add_both(path + part);
    add_both(path + "_layer_norm");
  }
  void add_stack(const std::string& stack, std::int64_t layers, bool decodes) {
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const std::string at = fmt::format("{}.layers.{}.", stack, layer);
      add_attention(at + "self_attn");
      if (decodes) add_attention(at + "encoder_attn");
      for (const char* part : {"fc1", "fc2", "final_layer_norm"}) add_both(at + part);
    }
    add_both(stack + ".layer_norm");
  }
  std::vector<TensorName> take() { return std::move(names_); }

 private:
  std::vector<TensorName> names_;
};

std::vector<TensorName> whisper_tensor_names(const json& keys) {
  const WhisperConfig config = whisper_config(keys);
  WhisperNames names;
  names.add_both("encoder.conv1");
  names.add_both("encoder.conv2");
  names.add("encoder.embed_positions.weight");
  names.add_stack("encoder", config.encoder_layers, false);
  names.add("decoder.embed_tokens.weight");
  names.add("decoder.embed_positions.weight");
  names.add_stack("decoder", config.decoder_layers, true);
  std::vector<TensorName> all = names.take();
  if (!config.tie_word_embeddings) all.push_back({"proj_out.weight", "proj_out.weight"});
  return all;
}

// Files of the bare model have no prefix.
std::string whisper_normalise(const std::string& name) {
  return name.starts_with("encoder.") || name.starts_with("decoder.") ? "model." + name : name;
}

}  // namespace

ModelFamily whisper_family() {
  return {.build = [](const json& keys) -> std::shared_ptr<torch::nn::Module> {
            return std::make_shared<WhisperImpl>(whisper_config(keys));
          },
          .tensor_names = whisper_tensor_names,
          .hugging_face_config = whisper_hugging_face_config,
          .model_type = kWhisper,
          .architectures = {kWhisperArchitecture},
          .vocabulary_size = [](const json& keys) { return whisper_config(keys).vocab_size; },
          .context_length = [](const json& keys) { return whisper_config(keys).max_target_positions; },
          .task = [](const json&) -> std::string { return "pairs"; },
          .normalise_name = [](const json&, const std::string& name) { return whisper_normalise(name); },
          .is_ignored_tensor =
              [](const json& keys, const std::string& name) {
                return name == "proj_out.weight" && whisper_config(keys).tie_word_embeddings;
              },
          .config_fingerprint = [](const json& keys) { return deciding_keys_of(keys, kWhisper, read_whisper); },
          .check = [](const json& keys) { whisper_config(keys); },
          .inputs = {"input_features", "decoder_input_ids", "decoder_attention_mask"}};
}

}  // namespace gantry::models

#include "gantry/models/whisper_family.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/described/keys_of_family.h"
#include "gantry/models/stack_names.h"
#include "gantry/models/whisper.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

using nlohmann::json;

constexpr const char* kWhisper = "whisper";
constexpr const char* kWhisperArchitecture = "WhisperForConditionalGeneration";
constexpr const char *kWhisperTable = "model.decoder.embed_tokens.weight", *kWhisperHead = "proj_out.weight";

const auto kReadWhisper = with_shared_keys(read_whisper, /*has_cross_attention=*/true);

WhisperConfig whisper_config(const json& keys) { return read_keys(keys, kWhisper, kReadWhisper); }

json whisper_hugging_face_config(const json& keys) {
  json full = full_config_of(keys, kWhisper, kWhisperArchitecture, kReadWhisper);
  full["is_encoder_decoder"] = true;
  leave_out_tokens(full);
  return full;
}

std::vector<TensorName> whisper_tensor_names(const json& keys) {
  const WhisperConfig config = whisper_config(keys);
  StackNames names(/*key_bias=*/false);
  names.add_both("encoder.conv1");
  names.add_both("encoder.conv2");
  names.add("encoder.embed_positions.weight");
  names.add_layers("encoder", config.encoder_layers, false);
  names.add_both("encoder.layer_norm");
  names.add("decoder.embed_tokens.weight");
  names.add("decoder.embed_positions.weight");
  names.add_layers("decoder", config.decoder_layers, true);
  names.add_both("decoder.layer_norm");
  std::vector<TensorName> all = names.take();
  if (!config.tie_word_embeddings) {
    all.push_back({kWhisperHead, kWhisperHead});
  } else {
    std::find_if(all.begin(), all.end(), [](const TensorName& name) {
      return name.hugging_face == kWhisperTable;
    })->other_names = {kWhisperHead};
  }
  return all;
}

std::vector<TiedTensor> whisper_tied_tensors(const json& keys) {
  if (!whisper_config(keys).tie_word_embeddings) return {};
  return {{kWhisperTable}, {kWhisperHead, {{"tie_word_embeddings", false}}}};
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
          .tied_tensors = whisper_tied_tensors,
          .config_fingerprint = [](const json& keys) { return deciding_keys_of(keys, kWhisper, kReadWhisper); },
          .check = [](const json& keys) { return check_keys(*find_family_reader(kWhisper), keys); },
          .inputs = {"input_features", "decoder_input_ids", "decoder_attention_mask"}};
}

}  // namespace gantry::models

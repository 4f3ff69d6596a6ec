#include "gantry/models/whisper_family.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/described/keys_of_family.h"
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

#include "gantry/models/bart_family.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/models/bart.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/described/keys_of_family.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

using nlohmann::json;

constexpr const char* kBart = "bart";
constexpr const char* kBartArchitecture = "BartForConditionalGeneration";
constexpr const char *kBartTable = "model.shared.weight", *kBartHead = "lm_head.weight";

const auto kReadBart = with_shared_keys(read_bart, /*has_cross_attention=*/true);

BartConfig bart_config(const json& keys) { return read_keys(keys, kBart, kReadBart); }

json bart_hugging_face_config(const json& keys) {
  json full = full_config_of(keys, kBart, kBartArchitecture, kReadBart);
  full["is_encoder_decoder"] = true;
  leave_out_tokens(full);
  return full;
}

class BartNames {
 public:
  void add(const std::string& name) { names_.push_back({name, "model." + name}); }
  void add_both(const std::string& path) {
    add(path + ".weight");
    add(path + ".bias");
  }
  void add_attention(const std::string& path) {
    for (const char* part : {".q_proj", ".k_proj", ".v_proj", ".out_proj", "_layer_norm"}) add_both(path + part);
  }
  void add_stack(const std::string& stack, std::int64_t layers, bool decodes) {
    add(stack + ".embed_positions.weight");
    add_both(stack + ".layernorm_embedding");
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const std::string at = fmt::format("{}.layers.{}.", stack, layer);
      add_attention(at + "self_attn");
      if (decodes) add_attention(at + "encoder_attn");
      for (const char* part : {"fc1", "fc2", "final_layer_norm"}) add_both(at + part);
    }
  }
  std::vector<TensorName> take() { return std::move(names_); }

 private:
  std::vector<TensorName> names_;
};

// The names that the shared table may have in files.
std::vector<std::string> names_of_table(const BartConfig& config) {
  std::vector<std::string> names = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"};
  if (config.tie_word_embeddings) names.emplace_back(kBartHead);
  return names;
}

std::vector<TensorName> bart_tensor_names(const json& keys) {
  const BartConfig config = bart_config(keys);
  BartNames names;
  names.add("shared.weight");
  names.add_stack("encoder", config.encoder_layers, false);
  names.add_stack("decoder", config.decoder_layers, true);
  std::vector<TensorName> all = names.take();
  all.front().other_names = names_of_table(config);
  if (!config.tie_word_embeddings) all.push_back({kBartHead, kBartHead});
  all.push_back({.name = "final_logits_bias", .hugging_face = "final_logits_bias", .new_allowed = true});
  return all;
}

std::vector<TiedTensor> bart_tied_tensors(const json& keys) {
  std::vector<TiedTensor> tied = {{kBartTable},
                                  {"model.encoder.embed_tokens.weight", {{"separate_encoder_embedding", true}}},
                                  {"model.decoder.embed_tokens.weight", {{"separate_decoder_embedding", true}}}};
  if (bart_config(keys).tie_word_embeddings) tied.push_back({kBartHead, {{"tie_word_embeddings", false}}});
  return tied;
}

// Files of the bare model have no prefix.
std::string bart_normalise(const std::string& name) {
  for (const char* part : {"shared.", "encoder.", "decoder."})
    if (name.starts_with(part)) return "model." + name;
  return name;
}

bool is_other_bart_head(const std::string& name) {
  return name.starts_with("classification_head.") || name.starts_with("qa_outputs.");
}

}  // namespace

ModelFamily bart_family() {
  return {.build = [](const json& keys) -> std::shared_ptr<torch::nn::Module> {
            return std::make_shared<BartImpl>(bart_config(keys));
          },
          .tensor_names = bart_tensor_names,
          .hugging_face_config = bart_hugging_face_config,
          .model_type = kBart,
          .architectures = {kBartArchitecture},
          .vocabulary_size = [](const json& keys) { return bart_config(keys).vocab_size; },
          .context_length = [](const json& keys) { return bart_config(keys).max_position_embeddings; },
          .task = [](const json&) -> std::string { return "pairs"; },
          .normalise_name = [](const json&, const std::string& name) { return bart_normalise(name); },
          .tied_tensors = bart_tied_tensors,
          .is_ignored_tensor = [](const json&, const std::string& name) { return is_other_bart_head(name); },
          .config_fingerprint = [](const json& keys) { return deciding_keys_of(keys, kBart, kReadBart); },
          .check = [](const json& keys) { return check_keys(*find_family_reader(kBart), keys); },
          .inputs = {"input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask"}};
}

}  // namespace gantry::models

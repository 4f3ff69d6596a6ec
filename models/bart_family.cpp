#include "gantry/models/bart_family.h"

#include <nlohmann/json.hpp>

#include "gantry/models/bart.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/described/keys_of_family.h"
#include "gantry/models/stack_names.h"
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

// The names that the shared table may have in files.
std::vector<std::string> names_of_table(const BartConfig& config) {
  std::vector<std::string> names = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"};
  if (config.tie_word_embeddings) names.emplace_back(kBartHead);
  return names;
}

std::vector<TensorName> bart_tensor_names(const json& keys) {
  const BartConfig config = bart_config(keys);
  StackNames names(/*key_bias=*/true);
  names.add("shared.weight");
  for (const bool decodes : {false, true}) {
    const std::string stack = decodes ? "decoder" : "encoder";
    names.add(stack + ".embed_positions.weight");
    names.add_both(stack + ".layernorm_embedding");
    names.add_layers(stack, decodes ? config.decoder_layers : config.encoder_layers, decodes);
  }
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

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

constexpr const char *kBartTable = "model.shared.weight", *kBartHead = "lm_head.weight";

// The differences between the two families, except their modules.
struct BartFiles {
  const char *model_type, *architecture;
  BartConfig (*read)(ConfigReader& reader);

  auto reads() const { return with_shared_keys(read, /*has_cross_attention=*/true); }
  BartConfig config(const json& keys) const { return read_keys(keys, model_type, reads()); }
};

const BartFiles kBartFiles{"bart", "BartForConditionalGeneration", read_bart};
const BartFiles kPegasusFiles{"pegasus", "PegasusForConditionalGeneration", read_pegasus};

json bart_hugging_face_config(const BartFiles& files, const json& keys) {
  json full = full_config_of(keys, files.model_type, files.architecture, files.reads());
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

std::vector<TensorName> bart_tensor_names(const BartConfig& config) {
  StackNames names(/*key_bias=*/true);
  names.add("shared.weight");
  for (const bool decodes : {false, true}) {
    const std::string stack = decodes ? "decoder" : "encoder";
    names.add(stack + ".embed_positions.weight");
    if (config.norms_before) names.allow_new();  // older files lack the fixed positions
    names.add_both(stack + (config.norms_before ? ".layer_norm" : ".layernorm_embedding"));
    names.add_layers(stack, decodes ? config.decoder_layers : config.encoder_layers, decodes);
  }
  std::vector<TensorName> all = names.take();
  all.front().other_names = names_of_table(config);
  if (!config.tie_word_embeddings) all.push_back({kBartHead, kBartHead});
  all.push_back({.name = "final_logits_bias", .hugging_face = "final_logits_bias", .new_allowed = true});
  return all;
}

std::vector<TiedTensor> bart_tied_tensors(const BartConfig& config) {
  std::vector<TiedTensor> tied = {{kBartTable},
                                  {"model.encoder.embed_tokens.weight", {{"separate_encoder_embedding", true}}},
                                  {"model.decoder.embed_tokens.weight", {{"separate_decoder_embedding", true}}}};
  if (config.tie_word_embeddings) tied.push_back({kBartHead, {{"tie_word_embeddings", false}}});
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

ModelFamily family_of(BartFiles files) {
  return {.build = [files](const json& keys) -> std::shared_ptr<torch::nn::Module> {
            return std::make_shared<BartImpl>(files.config(keys));
          },
          .tensor_names = [files](const json& keys) { return bart_tensor_names(files.config(keys)); },
          .hugging_face_config = [files](const json& keys) { return bart_hugging_face_config(files, keys); },
          .model_type = files.model_type,
          .architectures = {files.architecture},
          .vocabulary_size = [files](const json& keys) { return files.config(keys).vocab_size; },
          .context_length = [files](const json& keys) { return files.config(keys).max_position_embeddings; },
          .task = [](const json&) -> std::string { return "pairs"; },
          .normalise_name = [](const json&, const std::string& name) { return bart_normalise(name); },
          .tied_tensors = [files](const json& keys) { return bart_tied_tensors(files.config(keys)); },
          .is_ignored_tensor = [](const json&, const std::string& name) { return is_other_bart_head(name); },
          .config_fingerprint =
              [files](const json& keys) { return deciding_keys_of(keys, files.model_type, files.reads()); },
          .check = [files](const json& keys) { return check_keys(*find_family_reader(files.model_type), keys); },
          .inputs = {"input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask"}};
}

}  // namespace

ModelFamily bart_family() { return family_of(kBartFiles); }
ModelFamily pegasus_family() { return family_of(kPegasusFiles); }

}  // namespace gantry::models

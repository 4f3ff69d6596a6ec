// The definition of a family of decoders: how its config.json is read, and the names of its tensors in Hugging Face's
// files. models/families/ has one file per family.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gantry/models/described/config_reader.h"
#include "gantry/models/described/decoder_spec.h"

namespace gantry::models {

// Maps registered paths to tensor names in Hugging Face's files: prefix + path, with some components replaced.
struct FileNames {
  std::string prefix = "model.";  // prefix of the base model; files of the bare base model lack it
  std::string head = "lm_head";   // no prefix is added to it
  std::vector<std::pair<std::string, std::string>> renamed;  // {registered path within a layer, name in the files}
  std::vector<std::string> transposed;  // registered paths within a layer that files store as [in, out]
  // {registered path within a layer, name in the files} of weights that files store row by row; "{}" is the number of
  // the row.
  std::vector<std::pair<std::string, std::string>> by_row;
  // {registered path within a layer, another name in files} of weights with two spellings.
  std::vector<std::pair<std::string, std::string>> other_names = {};
  std::vector<std::string> scalars = {};  // registered tensors [1] within a layer that files store without dimensions
  // Files may contain additional layers for multi-token prediction, after the last layer of the description or in
  // modules whose names begin with "mtp", which are ignored.
  bool further_layers = false;
  // Names of an expert's projections if files store each expert separately; "{}" is the number of the expert:
  // "mlp.experts.{}.gate_proj". All empty: files have the registered tensors. Experts without a gate have no name of
  // it.
  std::string expert_gate = {}, expert_up = {}, expert_down = {};
  std::vector<std::string> ignored = {".rotary_emb.inv_freq"};  // suffixes of tensors that are not parameters
  // Modules of further parts of the model, "vision_tower". Their tensors are not loaded, and exports keep them.
  std::vector<std::string> other_parts = {};
};

// A decoder that is a part of a larger model, for example the text decoder of a model that also reads images. Its keys
// are in a mapping of config.json of their own, kTextConfig. The other parts are not loaded (FileNames::other_parts).
struct TowerKeys {
  // Values of model_type in the mapping that the family reads; the first one is the default.
  std::vector<std::string> text_types;
  bool may_be_flat = false;  // older files have the keys of the decoder in config.json itself
  bool tied = false;         // tie_word_embeddings if neither config.json nor the mapping has it
  // The decoder of transformers is a ...ForCausalLM: its modules have the names in files, and only its own
  // tie_word_embeddings counts. Otherwise it is the module model.language_model, and config.json ties the head.
  bool is_causal_lm = false;
  // Returns DecoderSpec::text_tokens from the keys of config.json. Null: 0.
  std::int64_t (*text_tokens)(const nlohmann::json& keys) = nullptr;
};

// Small sizes for families with the key names of Llama.
nlohmann::json small_keys();

struct DecoderFamily {
  std::string model_type;    // "llama"
  std::string architecture;  // "LlamaForCausalLM"
  // Converts config.json to a DecoderSpec. Reads every key that affects the computation. Throws ConfigError like
  // ConfigReader. For a tower, `reader` has the keys of the decoder, and its family is their model_type.
  DecoderSpec (*read)(ConfigReader& reader);
  // Converts the keys of the image encoder, if Gantry can load the one of this family. `reader` has all keys of
  // config.json. `text`: the decoder. Null: it cannot.
  VisionSpec (*read_vision)(ConfigReader& reader, const DecoderSpec& text) = nullptr;
  std::vector<std::string> image_entries = {};  // entries of a batch with images besides pixel_values
  FileNames files = {};
  std::vector<std::string> harmless = {};  // further keys of config.json that do not affect the computation
  nlohmann::json small = small_keys();     // keys of a small model, as a starting point
  std::optional<TowerKeys> tower = {};     // not set: config.json describes the decoder alone
};

// Gantry's own key in config.json: true if the model has its image encoder. Otherwise it is the text decoder alone.
inline constexpr const char* kImageEncoder = "image_encoder";

// Gantry's own key in config.json: the factor of the loss of multi-token prediction (DecoderSpec::mtp_loss). Without
// it, or with 0, the model does not have the layers of num_nextn_predict_layers, and does not read them.
inline constexpr const char* kMtpFactor = "mtp_loss_scaling_factor";

// Gantry's own families.
const std::vector<DecoderFamily>& decoder_families();

// True if `architectures` in config.json names a class that ends with ForSequenceClassification, such as
// LlamaForSequenceClassification: the head has one output per label.
bool has_labels(const nlohmann::json& keys);

// Returns the description of a family's model. It reads the keys of all families, those of `family` and those of the
// head.
DecoderSpec read_decoder(const DecoderFamily& family, ConfigReader& reader);

// Returns the description of a model from the keys of its config.json. Throws ConfigError for an unknown family and an
// unsupported value. Keys that neither the family nor transformers know have no effect.
DecoderSpec decoder_spec(const std::string& family, const nlohmann::json& keys);
DecoderSpec decoder_spec(const DecoderFamily& family, const nlohmann::json& keys);

}  // namespace gantry::models

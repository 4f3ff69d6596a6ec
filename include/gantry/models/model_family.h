// A model family: how to build a model from Hugging Face's config.json, and the names and orientation of its tensors in
// Hugging Face's files.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "gantry/core/registry.h"
#include "gantry/core/slice.h"
#include "gantry/models/described/checked_keys.h"

namespace gantry::models {

// A part of a tensor that files store as a separate tensor: the result of `shards`, without a first dimension of 1.
struct TensorPart {
  std::string hugging_face;
  std::vector<AppliedShard> shards;
};

// The names of a tensor: the global name in Gantry, and the name in Hugging Face's files.
struct TensorName {
  std::string name;
  std::string hugging_face;
  bool transposed = false;  // the files store [in, out]
  // Tensor of a head that may be missing in a file of the base model; it keeps its initial weights.
  bool new_allowed = false;
  std::vector<std::string> copies = {};  // further names that are written with the same values, and not read
  std::vector<TensorPart> parts = {};    // separately stored parts; hugging_face is then empty
  // Other forms in which files of other versions have the tensor. They are read, and never written.
  std::string preferred = {};                 // name that is read instead of hugging_face if the files have it
  std::vector<std::string> other_names = {};  // names that are read if the files lack those above
  std::vector<TensorPart> other_parts = {};   // parts that are read if the files lack all these names
};

// A tensor in Hugging Face's files that the model shares with others, for example an output layer with the embedding.
// If the files store it with values of its own, the model has `apart` among its keys, otherwise `together`.
struct TiedTensor {
  std::string hugging_face;
  nlohmann::json apart = nlohmann::json::object(), together = nlohmann::json::object();
};

// The definition of a model family. `config` is always a JSON object with keys of config.json.
struct ModelFamily {
  // Builds the model from the keys of config.json; missing keys have Hugging Face's defaults. Throws ConfigError that
  // names the key for wrong types and unsupported values.
  std::function<std::shared_ptr<torch::nn::Module>(const nlohmann::json& config)> build;
  // Returns the names of all parameters of the model. A tied parameter is listed once, by the name of the input
  // embedding.
  std::function<std::vector<TensorName>(const nlohmann::json& config)> tensor_names;
  // Returns the complete config.json that transformers expects.
  std::function<nlohmann::json(const nlohmann::json& config)> hugging_face_config;
  std::string model_type;                  // "gpt2"
  std::vector<std::string> architectures;  // "GPT2LMHeadModel"
  // Return the number of tokens in the vocabulary, and the largest number of positions.
  std::function<std::int64_t(const nlohmann::json& config)> vocabulary_size;
  std::function<std::int64_t(const nlohmann::json& config)> context_length;
  // Returns the training task of the head, which determines its inputs and labels. Unset: "tokens".
  //   "tokens"   {logits} with {labels}, aligned
  //   "pairs"    the same for an encoder-decoder model
  //   "classes"  {logits} with one of several labels per sample or token
  //   "images"   the same for images
  //   "spans"    {logits [B, S, 2]} with {start_positions, end_positions}
  //   "contrast" {losses [B]}, the loss of each sample, without labels
  //   "none"     no training
  std::function<std::string(const nlohmann::json& config)> task;
  // Returns the problem_type of a classification head in transformers, which selects the loss:
  // "single_label_classification", "regression" or "multi_label_classification"; "" if the type of the labels decides
  // between the first (integers) and the last. Unset: the first.
  std::function<std::string(const nlohmann::json& config)> problem_type;
  // Returns the family's name for a tensor in a file (prefixes and spellings differ between versions), or "" to ignore
  // the tensor. Unset: the name is used unchanged.
  std::function<std::string(const nlohmann::json& config, const std::string& file_name)> normalise_name;
  // The tensors that share one parameter according to the keys. The first one is the table, which all others equal
  // unless the files have different values for them. Unset or empty: none.
  std::function<std::vector<TiedTensor>(const nlohmann::json& config)> tied_tensors = {};
  // Modules of further parts of the model, "vision_tower", in files. Their tensors are not loaded, unless
  // tensor_names() lists them. Exports keep those that are not loaded.
  std::vector<std::string> other_parts = {};
  // {prefix of names in files, prefix of these modules' names in transformers}, for adapters. Empty: the names are
  // equal.
  std::vector<std::pair<std::string, std::string>> module_names = {};
  // True for tensors of heads that this model does not have, which are ignored. Unset: there are none.
  std::function<bool(const nlohmann::json& config, const std::string& name)> is_ignored_tensor;
  // Returns the keys that affect the model's computation, normalised and with defaults; a resumed run must have those
  // of its checkpoint. Unset: the result of hugging_face_config without keys for dropout, initial weights, token ids
  // and dtypes.
  std::function<nlohmann::json(const nlohmann::json& config)> config_fingerprint;
  // The keys that the family reads or ignores on purpose, if it has no `check`. Empty: any key.
  std::vector<std::string> keys = {};
  // Reads all keys, and throws ConfigError for unsupported values. Returns the known keys, and those that neither the
  // family nor Hugging Face's models have. Unset: `keys` are the known ones, and build() checks the values.
  std::function<CheckedKeys(const nlohmann::json& config)> check = {};
  // True if every token sees the tokens after it, so that labels for the next token are not a training task.
  bool is_bidirectional = false;
  // The batch entries that the model reads in addition to labels. The first one is required. pixel_values and
  // input_features are floating-point tensors, the others are integers.
  std::vector<std::string> inputs = {"input_ids", "attention_mask", "token_type_ids", "position_ids", "document_ids"};
};

// Checks the keys of a model. Returns a warning that lists the keys of `file` without effect: neither the family nor
// Hugging Face's models have them. Returns "" if there are none. Throws ConfigError for unsupported values, for an
// unknown key that is not in `file`, and for all unknown keys if `rule` (model.unknown_keys) is "refuse". `file`: the
// config.json that the keys override, read from `path`; empty without one.
std::string check_model_keys(const ModelFamily& family, const nlohmann::json& config, const std::string& rule,
                             const nlohmann::json& file, const std::string& path);

// True if the image encoder of the family, which is among its other_parts, can be loaded.
bool reads_images(const ModelFamily& family);

// True for a tensor of one of `parts` (ModelFamily::other_parts), by any name that files may have for it.
bool is_of_other_part(const std::vector<std::string>& parts, const std::string& name);

// True if the model of these keys is a decoder that is trained on the next token, so that it can continue text.
bool continues_text(const ModelFamily& family, const nlohmann::json& config);

// Returns the keys that affect the computation, with the rule of ModelFamily::config_fingerprint.
nlohmann::json config_fingerprint(const ModelFamily& family, const nlohmann::json& config);

// The registry of model families. Gantry's own families are always registered.
Registry<ModelFamily>& families();

// Returns the name of the family with the model_type of a config.json; "" if there is none.
std::string family_of(const nlohmann::json& config);

}  // namespace gantry::models

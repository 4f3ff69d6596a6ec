// What Gantry knows of a model by its name: how to build it from Hugging Face's config.json, and the names and
// orientation of its tensors in Hugging Face's files.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "gantry/core/registry.h"
#include "gantry/core/slice.h"

namespace gantry::models {

// A part of a tensor that files store apart: what the cuts leave of it, without a first dim of 1.
struct TensorPart {
  std::string hugging_face;
  std::vector<AppliedShard> cuts;
};

// One tensor: its global name here and in Hugging Face's files.
struct TensorName {
  std::string name;
  std::string hugging_face;
  bool transposed = false;               // stored [in, out] there
  bool new_allowed = false;              // of a head that a file of the bare model lacks: it keeps its initial weights
  std::vector<std::string> copies = {};  // further names there that get the same values; nothing is read from them
  std::vector<TensorPart> parts = {};    // in place of hugging_face, which is empty: files have no tensor of the whole
};

struct ModelFamily {
  // From config.json's keys (a subset is fine: defaults are Hugging Face's). ConfigError for unknown keys of ours,
  // wrong types or values this family can't do, naming the key.
  std::function<std::shared_ptr<torch::nn::Module>(const nlohmann::json& config)> build;
  // Every parameter of that model; a tied one once, under the input embedding's name.
  std::function<std::vector<TensorName>(const nlohmann::json& config)> tensor_names;
  // The whole config.json that transformers expects.
  std::function<nlohmann::json(const nlohmann::json& config)> hugging_face_config;
  std::string model_type;                  // "gpt2"
  std::vector<std::string> architectures;  // "GPT2LMHeadModel"
  std::function<std::int64_t(const nlohmann::json& config)> vocabulary_size;
  std::function<std::int64_t(const nlohmann::json& config)> context_length;
  // What the head is trained on: "tokens" ({logits} against {labels}, aligned), "pairs" (the same of a decoder that
  // reads an encoder), "classes" ({logits} against one of a few labels, a sample's or a token's), "images" (the same
  // of images), "spans" ({logits [B, S, 2]} against {start_positions, end_positions}), or "none". Unset: "tokens".
  std::function<std::string(const nlohmann::json& config)> task;
  // The family's name for a tensor of a file (prefixes and spellings differ between versions), "" to ignore it. Unset:
  // as it is.
  std::function<std::string(const nlohmann::json& config, const std::string& file_name)> normalise_name;
  // True for tensors of a head that this model does not have: they are passed over. Unset: there are none.
  std::function<bool(const nlohmann::json& config, const std::string& name)> is_ignored_tensor;
  // The keys that decide what the model computes, defaults filled in and in one spelling; a resumed run must have those
  // of its checkpoint. Unset: what hugging_face_config gives, but for keys that speak of dropout, initial weights,
  // token ids and types.
  std::function<nlohmann::json(const nlohmann::json& config)> config_fingerprint;
  // The keys that the family reads, or knows to leave the model as it is. Unset: any, unless `check` says more.
  std::vector<std::string> keys = {};
  // ConfigError for keys that the family does not understand, in a file too, and for values that it can't do. Unset:
  // build() says so.
  std::function<void(const nlohmann::json& config)> check = {};
  // The entries of a batch that the model reads beside labels; the first one is needed. pixel_values and input_features
  // are reals, the others whole numbers.
  std::vector<std::string> inputs = {"input_ids", "attention_mask", "token_type_ids", "position_ids", "document_ids"};
};

// ConfigError, naming the nearest one, for a key of model.config that neither the family nor `file` knows: the
// config.json that the keys go over, empty without one. Keys that all of Hugging Face's models have are known.
void refuse_unknown_keys(const ModelFamily& family, const nlohmann::json& config, const nlohmann::json& file);

nlohmann::json config_fingerprint(const ModelFamily& family, const nlohmann::json& config);

// The registry; Gantry's own families are in it from the start.
Registry<ModelFamily>& families();

// The name of the family that config.json's model_type is of; empty where there is none.
std::string family_of(const nlohmann::json& config);

}  // namespace gantry::models

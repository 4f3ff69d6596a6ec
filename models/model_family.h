// What Gantry knows of a model by its name: how to build it from Hugging Face's config.json, and the names and
// orientation of its tensors in Hugging Face's files.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gantry/core/registry.h"

namespace gantry::models {

// One tensor: its global name here and in Hugging Face's files.
struct TensorName {
  std::string name;
  std::string hugging_face;
  bool transposed = false;  // stored [in, out] there
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
  std::function<int(const nlohmann::json& config)> layers;
};

// The registry; Gantry's own families are in it from the start.
Registry<ModelFamily>& families();

// Names that are in files of some versions and may be ignored or renamed when reading ("transformer." prefix missing,
// "attn.bias" causal masks): the family's name for a file's tensor, or "" to ignore it.
std::string normalise_name(const std::string& model_type, const std::string& file_name);

}  // namespace gantry::models

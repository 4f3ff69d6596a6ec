// Adds adapters (LoRA) to the modules of a model that are listed by their names in Hugging Face's or PEFT's
// files.
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "gantry/core/config.h"
#include "gantry/models/described/lora_names.h"
#include "gantry/models/model_family.h"
#include "gantry/nn/linear.h"

namespace gantry::models {

// The path of a module in Hugging Face's model, by the names in its files. It is the registered path if
// `names` does not contain the module. `transposed`: files store the weight as [in, out]. Files that store
// experts separately are older than the modules that PEFT uses. Modules of experts and modules next to them
// then have their registered names, after the prefix of the files.
struct ModulePath {
  std::string path;
  bool transposed = false;
};
ModulePath hugging_face_path(const std::string& module, const std::vector<TensorName>& names);

inline constexpr const char* kPeftPrefix = "base_model.model.";  // begins the names in PEFT's files
inline constexpr const char* kPeftTokens = ".token_adapter";     // precedes kTrainedTokens in PEFT's files

// Adds adapters to the modules that `lora` lists: layers of gantry::nn::Linear, Embedding and Router, and
// stacks of Experts' weights ("experts.down_proj"). Freezes all parameters except those of adapters and of
// modules_to_save. `outputs`: paths of output layers, which all-linear leaves out like modules_to_save.
// `names`: the names of the model's family, empty for a custom model. `other_parts`: see ModelFamily; their
// layers get no adapter, but may be in modules_to_save. Trains the rows of trainable_token_indices in the
// embedding of a described decoder, and in its tied output layer. Throws ConfigError for an entry that
// matches nothing (with the nearest name), or a module without adapters. The same holds for a tied parameter
// that would be trained, a tied output layer, and dropout that PEFT does not support.
void add_adapters(torch::nn::Module& model, const LoraConfig& lora, const std::vector<TensorName>& names,
                  const std::vector<std::string>& outputs, const std::vector<std::string>& other_parts = {});

// A layer that an adapter changes, or a stack of its experts.
struct AdaptedLayer {
  std::string path;   // registered
  std::string stack;  // the name of a stack of experts; empty: the layer
  std::shared_ptr<torch::nn::Module> module;
  nn::AdapterOptions options;
};

// The parts of a model that an adapter changes.
struct AdaptedLayers {
  std::vector<AdaptedLayer> layers;
  std::vector<torch::Tensor> saved;  // the parameters of modules_to_save
};

// Finds the parts that add_adapters() would change, with its parameters and errors, and changes nothing. The model may
// be boosted.
AdaptedLayers adapted_layers(torch::nn::Module& model, const LoraConfig& lora, const std::vector<TensorName>& names,
                             const std::vector<std::string>& outputs, const std::vector<std::string>& other_parts = {});

// Returns `lora` with the model's head for labels in modules_to_save. PEFT trains it if the base model has
// none. Unchanged if the model has no such head, or if target_modules names it. For an adapter that is loaded
// (`path`), drops the names of heads that this model does not have: PEFT writes those of all models.
LoraConfig with_trained_heads(LoraConfig lora, const std::vector<TensorName>& names);

// PEFT's names of the trained tensors: of the adapters and the modules_to_save among `parameters`, which are
// the registered names of a full model.
std::vector<TensorName> trained_names(const std::vector<std::string>& parameters, const LoraConfig& lora,
                                      const std::vector<TensorName>& names);

// The entries of target_modules that name parameters. PEFT calls them target_parameters. `parameters`: as
// above.
std::vector<std::string> entries_of_parameters(const std::vector<std::string>& parameters, const LoraConfig& lora,
                                               const std::vector<TensorName>& names);

// Convert a factor of a stack to the form of PEFT's files and back, by the registered name: A
// [experts * rank, in], expert by expert, and B [out, rank * experts], rank by rank. Other tensors are
// returned unchanged.
torch::Tensor as_stored_factor(const std::string& name, const torch::Tensor& tensor);
torch::Tensor from_stored_factor(const std::string& name, const torch::Tensor& stored, std::int64_t experts);
std::vector<std::int64_t> stored_factor_shape(const std::string& name, const std::vector<std::int64_t>& shape);

// Whether a module is a head for labels, or a part of one.
bool is_label_head(const std::string& module);

}  // namespace gantry::models

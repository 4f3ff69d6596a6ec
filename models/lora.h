// Adds adapters (LoRA) to the modules of a model that are listed by their names in Hugging Face's or PEFT's
// files (models/peft_names.h).
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "gantry/core/config.h"
#include "gantry/models/model_family.h"
#include "gantry/nn/linear.h"

namespace gantry::models {

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

// Whether a module is a head for labels, or a part of one.
bool is_label_head(const std::string& module);

}  // namespace gantry::models

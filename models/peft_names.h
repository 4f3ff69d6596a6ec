// The names and forms of adapters' tensors in PEFT's files.
#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

#include "gantry/core/config.h"
#include "gantry/models/described/lora_names.h"
#include "gantry/models/model_family.h"

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

// Whether an entry of lora.target_modules or lora.modules_to_save names the module with this path, or a module that
// contains it.
bool names_around(const std::string& entry, const std::string& path);

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

}  // namespace gantry::models

// Names of modules in PEFT's files.
#pragma once

#include <string>

#include "gantry/core/config.h"
#include "gantry/models/model_family.h"

namespace gantry::models {

// PEFT names modules as transformers does; the files of some models name them otherwise (ModelFamily::module_names).
// These functions convert the path of a module or of a tensor, also after PEFT's own prefix. Other names stay as they
// are.
std::string to_module_name(const ModelFamily& family, const std::string& stored);
std::string from_module_name(const ModelFamily& family, const std::string& name);

// The same for the paths in lora.target_modules, modules_to_save and the patterns.
LoraConfig from_module_names(const ModelFamily& family, LoraConfig lora);

}  // namespace gantry::models

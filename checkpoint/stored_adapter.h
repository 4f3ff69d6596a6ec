// The tensors of a LoRA adapter, from PEFT's files or from a checkpoint.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <torch/types.h>

#include "gantry/core/config.h"

namespace gantry {

// The unsharded tensors of an adapter, by PEFT's names without their prefix.
struct StoredAdapter {
  std::string from;
  LoraConfig lora;
  std::string base;  // base that the adapter names
  std::map<std::string, torch::Tensor> tensors;
  bool is_directory = false;  // false: a checkpoint

  std::vector<std::string> stored_names() const;  // PEFT's names, with their prefix
};

// `from`: a PEFT directory, or a checkpoint of a run with adapters. The result refers to the base's original
// weights. `base`: directory of the base; empty: the one that `from` names. Throws InputError or
// CheckpointError.
StoredAdapter read_stored_adapter(const std::string& from, const std::string& base);

}  // namespace gantry

// The form in which a path stores a model's tensors. Every command that takes "a checkpoint or a model" uses
// this rule.
#pragma once

#include <string>

namespace gantry {

enum class StoredForm {
  kFile,          // one safetensors file
  kCheckpoint,    // a step folder, or its parent directory
  kParallelized,  // written by save_parallelized: one file per rank
  kHuggingFace,   // weights, or a config.json that announces weights
};

// Decides by file names, without reading files. Weights take precedence over step directories next to them,
// and step directories over a config.json alone, which training programs leave in such places. Any other
// path, existing or not, counts as a checkpoint, whose reader throws the error.
StoredForm stored_form(const std::string& path);

}  // namespace gantry

// In which form a path holds a model's tensors: one rule for every command that takes "a checkpoint or a model".
#pragma once

#include <string>

namespace gantry {

enum class StoredForm {
  kFile,          // one safetensors file
  kCheckpoint,    // a step folder, or its parent
  kParallelized,  // save_parallelized's: a file for each rank
  kHuggingFace,   // weights, or a config.json that says that there should be some
};

// Decides by file names; nothing is read. Weights take precedence over step directories next to them, and step
// directories over a config.json alone, which training programs leave in such places. What is none of these, or not
// there, is taken for a checkpoint, whose reader says what it lacks.
StoredForm stored_form(const std::string& path);

}  // namespace gantry

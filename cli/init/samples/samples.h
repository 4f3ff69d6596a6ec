// Writes the files that train.yaml names, unless they exist.
#pragma once

#include <filesystem>
#include <gantry/booster/gantry.h>

#include "drawn_samples.h"

// Each tensor [samples, ...] is an entry of the batch. To use your own samples, see docs/data_labelled.md of Gantry.
inline void write_samples() {
  torch::manual_seed(1);
  for (const auto& [file, count] : {std::pair("train.safetensors", 512), std::pair("held_out.safetensors", 64)}) {
    const gantry::TensorDict samples = drawn_samples(count);
    if (!std::filesystem::exists(file)) gantry::write_safetensors(file, samples);
  }
}

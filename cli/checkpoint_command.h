// `gantry checkpoint inspect`, `verify` and `diff`: the commands that read checkpoints without LibTorch.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace gantry::cli {

// Adds the commands to `gantry checkpoint`. `hand_on` runs the engine. It is called if diff compares a checkpoint with
// a Hugging Face model, because only the engine knows the tensor names of both.
void add_checkpoint_readers(CLI::App& checkpoint, const std::function<void()>& hand_on);

}  // namespace gantry::cli

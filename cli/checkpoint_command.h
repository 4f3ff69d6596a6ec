// `gantry checkpoint inspect, verify, diff`: what reads checkpoints without LibTorch.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace gantry::cli {

// Adds them to `gantry checkpoint`. `hand_on` runs the engine, which compares a checkpoint with a model of Hugging
// Face's: it knows the names of both.
void add_checkpoint_readers(CLI::App& checkpoint, const std::function<void()>& hand_on);

}  // namespace gantry::cli

// `gantry checkpoint inspect, verify, diff`: what reads checkpoints without LibTorch.
#pragma once

#include <CLI/CLI.hpp>

namespace gantry::cli {

// Adds them to `gantry checkpoint`.
void add_checkpoint_readers(CLI::App& checkpoint);

}  // namespace gantry::cli

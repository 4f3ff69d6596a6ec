// `gantry plan` and `gantry plan estimate`: layouts for a model and a cluster, without LibTorch.
#pragma once

#include <CLI/CLI.hpp>

namespace gantry::cli {

void add_plan_command(CLI::App& app);

}  // namespace gantry::cli

// `gantry plan` and its subcommands: layouts for a model and a cluster. Only `measure` needs LibTorch.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "gantry/cli/commands.h"

namespace gantry::cli {

void add_plan_command(CLI::App& app, PlanMeasureArguments& measure, const std::function<void()>& run_measure);

}  // namespace gantry::cli

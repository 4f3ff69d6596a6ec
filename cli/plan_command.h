// `gantry plan` and its subcommands: layouts for a model and a cluster. Only `measure` needs LibTorch.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "gantry/cli/commands.h"

namespace gantry::cli {

// Called with the configuration and its overrides before they are read, for the families of its libraries, which need
// LibTorch: the front end replaces itself by the engine, and the engine loads the libraries.
using Prepare = std::function<void(const std::string& config, const std::vector<std::string>& sets)>;

void add_plan_command(CLI::App& app, PlanMeasureArguments& measure, const std::function<void()>& run_measure,
                      const Prepare& prepare);

}  // namespace gantry::cli

// `gantry report FOLDER`: a run's report, made anew.
#pragma once

#include <CLI/CLI.hpp>

namespace gantry::cli {

void add_report_command(CLI::App& app);

}  // namespace gantry::cli

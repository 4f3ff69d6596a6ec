// `gantry report FOLDER`: writes the report of a run again.
#pragma once

#include <CLI/CLI.hpp>

namespace gantry::cli {

void add_report_command(CLI::App& app);

}  // namespace gantry::cli

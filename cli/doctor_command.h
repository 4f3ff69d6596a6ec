// `gantry doctor`: shows this build and machine. `gantry doctor DIR`: diagnoses a job from its flight records.
#pragma once

#include <CLI/CLI.hpp>

namespace gantry::cli {

// With DIR, the command throws InputError if a file is not a valid record.
CLI::App* add_doctor_command(CLI::App& app);

}  // namespace gantry::cli

// `gantry doctor`: what this build and machine can do; `gantry doctor DIR`: what a job's flight records say.
#pragma once

#include <CLI/CLI.hpp>

namespace gantry::cli {

// With DIR: InputError for files that are no sound records.
CLI::App* add_doctor_command(CLI::App& app);

}  // namespace gantry::cli

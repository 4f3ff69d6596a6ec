// `gantry schedule show, check, simulate, draw NAME or FILE.csv`: schedules without a model, without LibTorch.
#pragma once

namespace CLI {
class App;
}

namespace gantry::cli {

// Adds the subcommand. Its callbacks print to stdout and throw gantry::Error; `check` throws InputError (exit code 4)
// for a schedule that is broken.
void add_schedule_command(CLI::App& app);

}  // namespace gantry::cli

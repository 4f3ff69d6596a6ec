// `gantry schedule show`, `check`, `simulate` and `draw`: pipeline schedules without a model and without LibTorch.
#pragma once

namespace CLI {
class App;
}

namespace gantry::cli {

// Adds the command. Its callbacks print to stdout and throw gantry::Error. `check` throws InputError (exit code 4) if
// the schedule cannot run.
void add_schedule_command(CLI::App& app);

}  // namespace gantry::cli

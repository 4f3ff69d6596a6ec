// Detection of launchers that cannot start Gantry's ranks with the given command, by their environment
// variables.
#pragma once

#include <string>

namespace gantry {

// Throws UsageError with the command to use instead, if torchrun (or a launcher with its environment), or
// srun without PMIx, has started this program several times: each copy would run the job on its own. The
// command is built from this process's own command line.
void refuse_foreign_launcher();

// The same if a backend is configured whose ranks are processes, but no launcher has started them, for a job
// of `ranks` ranks.
void refuse_missing_launcher(const std::string& backend, int ranks);

// Returns the number in an environment variable that a launcher has set; -1 if there is none.
int launcher_number(const char* variable);

// True for the one copy of this program that prints messages for all: the only copy, or the first one of a
// launcher.
bool speaks_for_all();

}  // namespace gantry

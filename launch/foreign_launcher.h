// Launchers that can't start Gantry's ranks as they were called, recognized by their environment variables.
#pragma once

#include <string>

namespace gantry {

// UsageError with the command to run instead, where torchrun (or a launcher with its environment), or srun without
// PMIx, has started this program several times: each copy would take itself for the whole job. The command line is this
// process's own.
void refuse_foreign_launcher();

// The same for a configured backend of processes without a launcher that can start them, for a job of `ranks` ranks.
void refuse_missing_launcher(const std::string& backend, int ranks);

// The number that a launcher has left in an environment variable; -1 where there is none.
int launcher_number(const char* variable);

// True for the copy of this program that speaks for all in messages: the only one, or the first of a launcher's.
bool speaks_for_all();

}  // namespace gantry

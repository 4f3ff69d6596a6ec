// The interface of the process's flight recorder for programs (docs/troubleshooting.md).
#pragma once

#include <string>

namespace gantry::recorder {

// Writes the records of every rank of this process to files. Other processes of the job write theirs too, each on its
// host. Returns false if there is nothing to write, or on failure. May be called from any thread.
bool write_flight_records(const std::string& reason);

}  // namespace gantry::recorder

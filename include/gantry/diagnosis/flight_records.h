// What a program may ask of the flight recorder of its process (docs/troubleshooting.md).
#pragma once

#include <string>

namespace gantry::recorder {

// Writes the file of every rank of this process. False if there is nothing to write, or if it could not be written.
// Called from any thread. In a job of several processes the others write theirs, as far as they share the folder.
bool write_flight_records(const std::string& reason);

}  // namespace gantry::recorder

// The properties of this build and machine, for `gantry doctor`.
#pragma once

namespace gantry::cli {

// Prints them to stdout, as lines or as one JSON object.
void show_doctor(bool as_json);

}  // namespace gantry::cli

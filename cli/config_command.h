// `gantry config CONFIG`: prints the resolved configuration and the values derived from it.
#pragma once

#include <string>
#include <vector>

namespace gantry::cli {

// Prints to stdout. `cluster`: a name or a file; keys with the value auto are chosen for it, as in `gantry train`;
// empty: none. Throws ConfigError if the configuration is wrong or does not fit its own mesh, and UsageError if a key
// has the value auto and no cluster is given.
void show_config(const std::string& path, const std::vector<std::string>& sets, const std::string& cluster, bool json);
// `gantry doctor`: prints the properties of this build and machine, as lines or as one JSON object.
void show_doctor(bool as_json);

}  // namespace gantry::cli

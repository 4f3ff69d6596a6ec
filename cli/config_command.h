// `gantry config CONFIG`: the resolved configuration and what follows from it.
#pragma once

#include <string>
#include <vector>

namespace gantry::cli {

// Prints to stdout. `cluster`: a name or a file, for which what says auto is chosen, as `gantry train` does; empty:
// none. ConfigError for a configuration that is wrong or does not fit its own mesh; UsageError where keys say auto and
// there is no cluster.
void show_config(const std::string& path, const std::vector<std::string>& sets, const std::string& cluster, bool json);
// `gantry doctor`: what this build and machine can do, as lines or one JSON object.
void show_doctor(bool as_json);

}  // namespace gantry::cli

// `gantry config CONFIG`: the resolved configuration and what follows from it.
#pragma once

#include <string>
#include <vector>

namespace gantry::cli {

// Prints to stdout. ConfigError for a configuration that is wrong or does not fit its own mesh.
void show_config(const std::string& path, const std::vector<std::string>& sets, bool json);
// `gantry doctor`: what this build and machine can do, as lines or one JSON object.
void show_doctor(bool as_json);

}  // namespace gantry::cli

// The part of a run's configuration that can be shown to anyone.
#pragma once

#include <string>

namespace gantry {

// Returns the text of a config.yaml in which "(not shown)" replaces paths, addresses and secrets. Empty if
// the file cannot be parsed, for example because another version wrote it.
std::string public_config(const std::string& yaml);

}  // namespace gantry

// What others may see of a run's configuration.
#pragma once

#include <string>

namespace gantry {

// The text of a config.yaml without paths, addresses and secrets: "(not shown)" stands in their places. Empty for the
// file of another version, which can't be read.
std::string public_config(const std::string& yaml);

}  // namespace gantry

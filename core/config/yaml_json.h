// Converts YAML values to JSON. Internal to core/config/ and cli/.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <yaml-cpp/yaml.h>

#include "gantry/core/config/config_reader.h"

namespace gantry {

// Plain scalars get their JSON types; quoted ones stay strings. Faults are duplicate keys, keys that are not strings,
// merge keys, and numbers that are not finite.
nlohmann::json yaml_to_json(const YAML::Node& node, const std::string& path, ConfigFaults& faults);

}  // namespace gantry

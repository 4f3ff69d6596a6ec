// YAML values as JSON. Internal to core/ and cli/.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <yaml-cpp/yaml.h>

#include "gantry/core/config_reader.h"

namespace gantry {

// With the types that plain scalars have in JSON; quoted ones stay text. Faults are keys that are there twice, are no
// text or would merge, and numbers that are not finite.
nlohmann::json yaml_to_json(const YAML::Node& node, const std::string& path, ConfigFaults& faults);

}  // namespace gantry

// Checks YAML from outside before nodes are built from it: size, depth, anchors, tags, several documents.
#pragma once

#include <string>
#include <yaml-cpp/yaml.h>

namespace gantry {

// The single document in `text`. Throws ConfigError "name:line:column: ..." for any other input.
YAML::Node parse_yaml(const std::string& text, const std::string& name);

}  // namespace gantry

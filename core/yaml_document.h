// YAML from outside, checked before it is built into nodes: size, depth, anchors, tags, several documents.
#pragma once

#include <string>
#include <yaml-cpp/yaml.h>

namespace gantry {

// The one document of `text`. ConfigError "name:line:column: ..." for anything else.
YAML::Node parse_yaml(const std::string& text, const std::string& name);

}  // namespace gantry

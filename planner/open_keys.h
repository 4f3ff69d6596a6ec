// Which keys of a configuration a plan is to choose: those that say auto, and those that nobody states.
#pragma once

#include <set>
#include <string>
#include <vector>
#include <yaml-cpp/yaml.h>

namespace gantry::planner {

struct OpenKeys {
  std::set<std::string> open;          // of plannable_keys()
  std::set<std::string> asked;         // those of them that say auto
  std::vector<std::string> overrides;  // which give a value to what says auto meanwhile
};

// Of a file's document and the overrides of the command line. `absent_too`: what nobody states is open.
OpenKeys open_keys(const YAML::Node& document, const std::vector<std::string>& sets, bool absent_too = true);

// What opens keys, then what is set; auto itself is no value of most.
std::vector<std::string> overrides_with(const OpenKeys& opened, const std::vector<std::string>& sets);

// Whether any of these keys' auto is for a plan to resolve: the runtime resolves that of some by itself.
bool need_plan(const std::set<std::string>& asked);

}  // namespace gantry::planner

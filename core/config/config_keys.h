// All keys of the configuration as data: their descriptions for docs/configuration.md, and the conditions under which
// they have an effect.
//
// The reader rejects a key that has no effect, to_yaml() leaves it out, and the tables of the page are generated from
// this list. Conditions are choices by name, paths that are set, and numbers whose 0 means off. The sizes of the axes
// are not conditions of other keys where one file is meant to work with every layout.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/core/config/config_reader.h"

namespace gantry {

// The condition under which a key has an effect.
struct KeyContext {
  const char* needs;                        // the condition in words, a noun phrase: "optimizer.name sgd"
  bool (*holds)(const Config&);             // whether the condition holds
  std::string (*otherwise)(const Config&);  // the setting that breaks it: "with optimizer adamw"
  const char* remedy = "remove the key";
};

struct ConfigKey {
  const char* path;                     // "lr_schedule.min_lr"; an entry of a list is "[]": "data.sources[].weight"
  const char* initial;                  // the default, as the page shows it; empty: none
  const char* meaning;                  // the description for the page, Markdown
  const KeyContext* context = nullptr;  // null: the key always has an effect

  bool has_effect(const Config& config) const { return !context || context->holds(config); }
};

const std::vector<ConfigKey>& config_keys();

// Returns null if the path is not a key.
const ConfigKey* find_config_key(std::string_view path);

// Reports each key of the document that has no effect. `only_overridden`: only keys from --set, because the rest of the
// document was written by an earlier version.
void check_effects(const Config& config, const YAML::Node& document, bool only_overridden, ConfigFaults& faults);

}  // namespace gantry

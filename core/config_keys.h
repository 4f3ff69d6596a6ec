// Every key of the configuration as data: what docs/configuration.md says of it, and when it has an effect.
//
// The reader refuses a key that is there and has none, to_yaml() leaves such keys out, and the page's table is made of
// this list. What counts are choices by name, paths that are there, and numbers whose 0 means off. The sizes of the
// axes do not count, so that one file holds for every layout.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/core/config_reader.h"

namespace gantry {

// What has to be so for a key to have an effect.
struct KeyContext {
  const char* needs;                        // in words: "optimizer.name sgd"
  bool (*holds)(const Config&);             // whether it is so
  std::string (*otherwise)(const Config&);  // what is there in its place: "with optimizer adamw"
  const char* remedy = "take it out";
};

struct ConfigKey {
  const char* path;                     // "lr_schedule.min_lr"; an entry of a list is "[]": "data.sources[].weight"
  const char* initial;                  // the value without the key, as the page shows it; empty: none
  const char* meaning;                  // the page's words, Markdown
  const KeyContext* context = nullptr;  // null: it always has an effect

  bool has_effect(const Config& config) const { return !context || context->holds(config); }
};

const std::vector<ConfigKey>& config_keys();

// Null for a path that is no key.
const ConfigKey* find_config_key(std::string_view path);

// A fault for each key of the document that has no effect. `only_overridden`: of those that --set gave alone, where the
// rest was written by an earlier version.
void check_effects(const Config& config, const YAML::Node& document, bool only_overridden, ConfigFaults& faults);

}  // namespace gantry

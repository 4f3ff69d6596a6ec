// The result of reading a config.json: the names of its keys.
#pragma once

#include <string>
#include <vector>

namespace gantry::models {

struct CheckedKeys {
  std::vector<std::string> known;    // keys of the family and of all Hugging Face models
  std::vector<std::string> unknown;  // keys that neither have, and that therefore have no effect
};

}  // namespace gantry::models

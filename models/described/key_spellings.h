// Alternative spellings of the keys of Hugging Face's config.json.
#pragma once

#include <string>
#include <vector>

namespace gantry::models {

struct KeySpelling {
  std::string spelling, canonical;
  // False: transformers' class does not have the spelling, and published files contain unused values of it, which do
  // not have to agree with the canonical key.
  bool agrees = true;
};

// The spellings of a family's keys: the attribute map of transformers' configuration class, and names that other
// versions of the class have. An unknown family has none.
const std::vector<KeySpelling>& key_spellings(const std::string& model_type);

}  // namespace gantry::models

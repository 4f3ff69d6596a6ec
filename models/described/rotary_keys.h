// The keys of Hugging Face's config.json for rotary embeddings, in the spellings of all its versions.
#pragma once

#include <optional>

#include "gantry/models/described/config_reader.h"
#include "gantry/nn/rotary_options.h"

namespace gantry::models {

// The defaults of a family for keys that config.json does not have.
struct RotaryDefaults {
  double theta = 10000;
  // Rotated fraction of a head's features, if there is no partial_rotary_factor. Not set: the family's class in
  // transformers rotates all features, whatever that key says.
  std::optional<double> fraction = {};
  std::int64_t original = 0;      // original_max_position_embeddings; 0: max_position_embeddings
  bool yarn_is_longrope = false;  // early files of Phi-3 call longrope yarn
  // The key alpha of a "dynamic" type is a fixed factor of the base, for all lengths (HunYuan).
  bool alpha_changes_theta = false;
  nn::PositionRows rows = nn::PositionRows::kOne;
  std::vector<std::int64_t> sections = {};  // mrope_section
  // The class in transformers reads only the mappings for each kind of layers from rope_parameters.
  bool of_each_kind = false;
};

// From rope_parameters, or from the older rope_theta, rope_scaling and partial_rotary_factor. `positions`:
// max_position_embeddings. `layers`: the kind of layers, "full_attention" or "sliding_attention", if
// rope_parameters has a mapping for each kind. Throws ConfigError for an unknown type, an unsupported value,
// and for two spellings of one key that contradict each other. Keys without an effect are ignored.
nn::RotaryOptions rotary_options(ConfigReader& reader, std::int64_t head_size, std::int64_t positions,
                                 const RotaryDefaults& defaults = {}, const std::string& layers = "full_attention");
// True if rope_parameters has a mapping for each kind of layers.
bool has_rotary_for_each_kind(const ConfigReader& reader);

}  // namespace gantry::models

// Converts a family of described decoders to a ModelFamily: its module, its names in files, and its
// config.json.
#pragma once

#include "gantry/models/described/decoder_family.h"
#include "gantry/models/model_family.h"

namespace gantry::models {

ModelFamily model_family(const DecoderFamily& family);

// True for a tensor in files of a described decoder with the keys or values of a layer that uses those of another layer
// (AttentionSpec::keys_of). It is not loaded, and exports keep it. False for other families.
bool is_unused_key(const std::string& model_type, const nlohmann::json& keys, const std::string& name);

}  // namespace gantry::models

// From a family of described decoders to what Gantry knows of any model: its module, its names in files, its
// config.json.
#pragma once

#include "gantry/models/described/decoder_family.h"
#include "gantry/models/model_family.h"

namespace gantry::models {

ModelFamily model_family(const DecoderFamily& family);

}  // namespace gantry::models

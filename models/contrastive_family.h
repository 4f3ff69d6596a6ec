// The families of CLIP and SigLIP in Hugging Face's format.
#pragma once

#include "gantry/models/model_family.h"

namespace gantry::models {

ModelFamily clip_family();
ModelFamily siglip_family();

}  // namespace gantry::models

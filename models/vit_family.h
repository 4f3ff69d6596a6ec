// The family vit: Hugging Face's configuration keys and tensor names.
#pragma once

#include "gantry/models/model_family.h"

namespace gantry::models {

ModelFamily vit_family();

}  // namespace gantry::models

// The families t5, mt5 and umt5: Hugging Face's configuration keys and tensor names.
#pragma once

#include "gantry/models/model_family.h"

namespace gantry::models {

ModelFamily t5_family();
ModelFamily mt5_family();
ModelFamily umt5_family();

}  // namespace gantry::models

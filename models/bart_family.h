// The families bart and pegasus: Hugging Face's configuration keys and tensor names.
#pragma once

#include "gantry/models/model_family.h"

namespace gantry::models {

ModelFamily bart_family();
ModelFamily pegasus_family();

}  // namespace gantry::models

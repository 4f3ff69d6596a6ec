// The family whisper: Hugging Face's configuration keys and tensor names.
#pragma once

#include "gantry/models/model_family.h"

namespace gantry::models {

ModelFamily whisper_family();

}  // namespace gantry::models

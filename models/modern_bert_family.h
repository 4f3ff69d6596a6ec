// The family modernbert: Hugging Face's configuration keys and tensor names.
#pragma once

#include "gantry/models/model_family.h"

namespace gantry::models {

ModelFamily modern_bert_family();

}  // namespace gantry::models

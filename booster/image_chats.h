// Chats with images as training data.
#pragma once

#include <string>

#include "gantry/core/config.h"
#include "gantry/data/dataset.h"
#include "gantry/data/line_encoder.h"

namespace gantry {

// The rules of jsonl lines for a model of a family, with the reader of its images. There is none, but a reason, if the
// model has no image encoder, or if neither model.path nor the directory of the tokenizer has the configuration of an
// image processor. `data`: with the tokenizer. Throws InputError for a configuration that is not supported.
LineRules chat_rules(const Config& config, const DataConfig& data);

// The samples of data.format jsonl by these rules. `key`: the key of the path.
SampleSource chat_samples(const Config& config, const DataConfig& data, const std::string& key);

}  // namespace gantry

// Chats with images as training data.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/data/dataset.h"
#include "gantry/data/line_encoder.h"

namespace gantry {

// The rules of jsonl lines for a model of a family, with the reader of its images. Without a reader, but with
// a reason, if the model has no image encoder, or if neither model.path nor the directory of the tokenizer
// has the configuration of an image processor. `data`: with the tokenizer. Throws InputError for a
// configuration that is not supported.
LineRules chat_rules(const Config& config, const DataConfig& data);

// Makes batches of samples with `entries` and images for SampleSource::collate, for a model with an image encoder.
std::function<TensorDict(const std::vector<TensorDict>&)> collate_images(const Config& config,
                                                                         const std::vector<SampleEntry>& entries);

// The samples of data.format jsonl by these rules. `key`: the key of the path.
SampleSource chat_samples(const Config& config, const DataConfig& data, const std::string& key);

}  // namespace gantry

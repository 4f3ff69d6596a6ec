// Chats with images as training data.
#pragma once

#include <memory>
#include <string>

#include "gantry/core/config.h"
#include "gantry/data/dataset.h"
#include "gantry/data/images/image_reader.h"

namespace gantry {

// Returns the reader of the model's images: null if the model has no image encoder, or if neither model.path nor the
// directory of the tokenizer has the configuration of an image processor. Throws InputError for a configuration that is
// not supported.
std::shared_ptr<const ImageReader> image_reader_of(const Config& config, const DataConfig& data);

// The samples of data.format jsonl for a model with such a reader. `data`: with the tokenizer. `key`: the key of the
// path.
SampleSource image_chat_samples(const Config& config, const DataConfig& data,
                                const std::shared_ptr<const ImageReader>& images, const std::string& key);

}  // namespace gantry

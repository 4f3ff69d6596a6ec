// The reader of the images of a trained model's prompts.
#pragma once

#include <memory>
#include <string>

#include "gantry/cli/engine/trained_model.h"
#include "gantry/data/images/image_reader.h"

namespace gantry::cli {

// `flag`: the flag that requires images, for errors. Throws UsageError if the model has no image encoder, and
// InputError if the directory has no configuration of an image processor.
std::shared_ptr<const ImageReader> image_reader_of(const TrainedModel& model, const std::string& flag);

}  // namespace gantry::cli

// The form of the images in prompts and data of a model of images and text.
#pragma once

#include "gantry/data/images/image_reader.h"
#include "gantry/models/described/vision_spec.h"

namespace gantry {

// Returns the sizes of images and the text of an image in Hugging Face's processor of the model.
ImageFormat image_format_of(const models::VisionSpec& vision);

}  // namespace gantry

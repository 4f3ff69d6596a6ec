// The choice whether a model has its image encoder: the key `image_encoder` of model.config.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "gantry/core/config.h"

namespace gantry {

// True if the model of these keys has its image encoder.
bool has_image_encoder(const nlohmann::json& keys);

// Sets the key, unless it is set, for a model whose family can load its image encoder. The file at model.path may also
// set it. Other models are returned unchanged.
Config with_image_encoder(Config config);

// True if a safetensors file has an entry with images.
bool has_images(const std::string& path);

// True if the training data have images for a model that also reads text: a file of tensors with pixel_values, or JSON
// lines of which a source begins with a chat with an image. False if there are no such files.
bool has_images_for_text(const Config& config);

// Throws ConfigError for sections that do not support a model with an image encoder.
void refuse_with_image_encoder(const Config& config);

}  // namespace gantry

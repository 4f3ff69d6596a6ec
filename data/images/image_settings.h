// Settings of the preprocessing of images for a model.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "gantry/core/config.h"
#include "gantry/data/images/resample.h"

namespace gantry {

// The default values are those of ViT, used if there is no file with settings.
struct ImageSettings {
  int size = 224;        // the model reads images of size x size pixels
  int shorter_side = 0;  // evaluation: length of the shorter side before the centre crop; 0: resize to size x size
  bool crops = false;    // evaluation: the image is cropped at its centre; do_center_crop
  ImageFilter filter = ImageFilter::kBilinear;
  double scale = 1.0 / 255;  // factor for the bytes of an image
  std::array<double, kColours> mean{0.5, 0.5, 0.5}, deviation{0.5, 0.5, 0.5};
  // For training. True: a random crop; `crop_scale` and `crop_ratio` are the ranges of its share of the
  // image's area and of its width / height. False: the same view as in evaluation. `flip`: the probability of
  // mirroring an image.
  bool draws_crop = true;
  std::array<double, 2> crop_scale{0.08, 1}, crop_ratio{3.0 / 4, 4.0 / 3};
  double flip = 0.5;
};

// Reads folder/preprocessor_config.json, which Hugging Face's image processors write. Returns nothing without
// this file. Throws InputError that names the file and the key for values that are invalid, missing or not
// supported (padding, other filters, rectangles).
std::optional<ImageSettings> read_image_settings(const std::string& folder);
// Parses the text of such a file. `path`: the file's name in errors.
ImageSettings parse_image_settings(std::string_view text, const std::string& path);

// Returns the settings for a model that reads images of size x size pixels: those of the file in the model's
// directory, or else in data.path, or else the defaults with this size. Keys of the configuration override
// them. Throws ConfigError that names the key if sizes contradict the model or each other.
ImageSettings image_settings_of(const DataConfig& data, const std::string& model_folder, int size);

}  // namespace gantry

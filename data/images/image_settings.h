// How a model wants its pictures.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "gantry/core/config.h"
#include "gantry/data/images/resample.h"

namespace gantry {

// The initial values are those without a file: ViT's.
struct ImageSettings {
  int size = 224;  // of the picture that the model reads: size x size
  int shorter_side =
      0;  // in evaluation, images are resized to it before the centre is cropped; 0: to size x size at once
  ImageFilter filter = ImageFilter::kBilinear;
  double scale = 1.0 / 255;  // of a byte
  std::array<double, kColours> mean{0.5, 0.5, 0.5}, deviation{0.5, 0.5, 0.5};
  // Of training: a drawn part, and between which shares of the area and which ratios of its sides; else what is
  // evaluated. `flip`: the share of pictures that are mirrored.
  bool draws_crop = true;
  std::array<double, 2> crop_scale{0.08, 1}, crop_ratio{3.0 / 4, 4.0 / 3};
  double flip = 0.5;
};

// Of folder/preprocessor_config.json, as Hugging Face's image processors write it; nothing without that file.
// InputError, naming the file and the key, for values that are no such settings or that are not there (padding, other
// filters, rectangles).
std::optional<ImageSettings> read_image_settings(const std::string& folder);
// The same of the file's bytes; `path` is for errors.
ImageSettings parse_image_settings(std::string_view text, const std::string& path);

// Of a model that reads size x size: those of its folder, or else of the data's, or else ViT's, and over these what the
// configuration says. ConfigError, by the key, for sizes that contradict the model's or each other.
ImageSettings image_settings_of(const DataConfig& data, const std::string& model_folder, int size);

}  // namespace gantry

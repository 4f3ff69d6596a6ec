// How a model wants its pictures.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "gantry/data/images/resample.h"

namespace gantry {

// The initial values are those without a file: ViT's.
struct ImageSettings {
  int size = 224;        // of the picture that the model reads: size x size
  int shorter_side = 0;  // what is evaluated is resized to it before its centre is cut out; 0: to size x size at once
  ImageFilter filter = ImageFilter::kBilinear;
  double scale = 1.0 / 255;  // of a byte
  std::array<double, kColours> mean{0.5, 0.5, 0.5}, deviation{0.5, 0.5, 0.5};
};

// Of folder/preprocessor_config.json, as Hugging Face's image processors write it; nothing without that file.
// InputError, naming the file and the key, for values that are no such settings or that are not there (padding, other
// filters, rectangles).
std::optional<ImageSettings> read_image_settings(const std::string& folder);
// The same of the file's bytes; `path` is for errors.
ImageSettings parse_image_settings(std::string_view text, const std::string& path);

}  // namespace gantry

// Changing a picture's size.
#pragma once

#include "gantry/data/images/image.h"

namespace gantry {

enum class ImageFilter { kBilinear, kBicubic };

// That part of the picture as width x height, to the bit what Pillow's crop and resize make of it (src/libImaging/
// Resample.c): a filter that widens with the reduction, first along rows, then along columns, each rounded to bytes,
// by weights of 22 bits.
Image resize_part(const Image& image, const ImageBox& part, int width, int height, ImageFilter filter);

}  // namespace gantry

// Resizing of images.
#pragma once

#include "gantry/data/images/image.h"

namespace gantry {

enum class ImageFilter { kBilinear, kBicubic };

// Resizes a part of the image to width x height. The result is bitwise identical to that of Pillow's crop and
// resize (src/libImaging/Resample.c). The filter becomes wider when the image is reduced. It is applied along
// rows, then along columns, with weights of 22 bits. Both results are rounded to bytes.
Image resize_part(const Image& image, const ImageBox& part, int width, int height, ImageFilter filter);

}  // namespace gantry

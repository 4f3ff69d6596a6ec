// The orientation of photos: cameras store the pixels as the sensor reads them, and state how to turn them.
#pragma once

#include <cstddef>
#include <span>

#include "gantry/data/images/image.h"

namespace gantry {

// Returns the orientation tag (274) of Exif 2.32 in a JPEG or PNG file: 1 to 8. 1, which is upright, if the file has
// none or an unknown one.
int orientation_of(std::span<const std::byte> file);

// Turns and mirrors an image with this orientation upright, as Pillow's exif_transpose().
Image upright(Image image, int orientation);

}  // namespace gantry

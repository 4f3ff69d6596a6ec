// From a picture of any size to what a model reads.
#pragma once

#include <string>

#include "gantry/data/images/image_settings.h"
#include "gantry/tensors/philox.h"

namespace gantry {

// What a training sample's crop is: of torchvision's RandomResizedCrop within the settings' bounds, drawn by the seed
// and the sample's place in the run, from 0.
ImageBox drawn_crop(int width, int height, const ImageSettings& settings, std::uint64_t seed, std::int64_t place);
// Whether it is mirrored, likewise: such a share of all.
bool drawn_flip(double share, std::uint64_t seed, std::int64_t place);

// size x size: the drawn crop, resized, or what is evaluated where none is drawn; mirrored as drawn.
Image training_view(const Image& image, const ImageSettings& settings, std::uint64_t seed, std::int64_t place);
// Why the shorter side of a picture can't be resized: its longer one would have too many pixels. "" where it can.
std::string resize_fault(const Image& image, const ImageSettings& settings);
// The picture with its shorter side resized to settings.shorter_side, by the ratio of the sides rounded down.
Image with_shorter_side(const Image& image, const ImageSettings& settings);
// size x size: the centre of the picture, whose shorter side is first resized (torchvision's Resize and CenterCrop), or
// the whole of it.
Image evaluation_view(const Image& image, const ImageSettings& settings);

// (byte * scale - mean) / deviation in float32, as [colours, height, width].
void write_normalised(const Image& image, const ImageSettings& settings, float* numbers);

}  // namespace gantry

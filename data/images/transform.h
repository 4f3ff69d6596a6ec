// Converts images of any size to the model's input.
#pragma once

#include <string>

#include "gantry/data/images/image_settings.h"
#include "gantry/tensors/philox.h"

namespace gantry {

// Returns a random crop for a training sample, like torchvision's RandomResizedCrop with the ranges of the
// settings. It depends on the seed and on `place`, the position of the sample in the run, from 0.
ImageBox drawn_crop(int width, int height, const ImageSettings& settings, std::uint64_t seed, std::int64_t place);
// Returns whether the sample is mirrored, which has the probability `share`. It depends on the seed and on
// `place`.
bool drawn_flip(double share, std::uint64_t seed, std::int64_t place);

// Returns an image of size x size: the random crop, resized, or the evaluation view if crops are not random.
// It is mirrored if drawn_flip() returns true.
Image training_view(const Image& image, const ImageSettings& settings, std::uint64_t seed, std::int64_t place);
// Returns the reason why the shorter side cannot be resized: the result would have more than kMostPixels
// pixels. "" if it can be.
std::string resize_fault(const Image& image, const ImageSettings& settings);
// Resizes the shorter side to settings.shorter_side. The longer side keeps the ratio of the sides, rounded
// down.
Image with_shorter_side(const Image& image, const ImageSettings& settings);
// Returns an image of size x size: the centre crop after the shorter side was resized (torchvision's Resize
// and CenterCrop) or, if settings.shorter_side is 0, the full image, resized.
Image evaluation_view(const Image& image, const ImageSettings& settings);

// Writes (byte * scale - mean) / deviation in float32, as [colours, height, width].
void write_normalised(const Image& image, const ImageSettings& settings, float* numbers);

}  // namespace gantry

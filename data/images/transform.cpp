#include "gantry/data/images/transform.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "gantry/data/images/image_file.h"

namespace gantry {
namespace {

// Returns a number in [0, 1).
double unit(std::uint32_t word) { return word * 0x1p-32; }

int drawn_below(std::uint32_t word, int end) { return static_cast<int>(unit(word) * end); }

// Rounds halves to the even neighbour, like Python.
int rounded(double number) { return static_cast<int>(std::nearbyint(number)); }

void mirror(Image& image) {
  for (int y = 0; y < image.height; ++y)
    for (int left = 0, right = image.width - 1; left < right; ++left, --right)
      std::swap_ranges(image.row(y) + left * kPixelBytes, image.row(y) + (left + 1) * kPixelBytes,
                       image.row(y) + right * kPixelBytes);
}

// Returns the fallback of RandomResizedCrop if ten random crops did not fit.
ImageBox central_crop(int width, int height, const std::array<double, 2>& ratios) {
  ImageBox box{.width = width, .height = height};
  const double ratio = static_cast<double>(width) / height;
  if (ratio < ratios[0]) box.height = std::max(1, rounded(width / ratios[0]));
  if (ratio > ratios[1]) box.width = std::max(1, rounded(height * ratios[1]));
  box.left = (width - box.width) / 2;
  box.top = (height - box.height) / 2;
  return box;
}

// Returns the longer side of the image once its shorter side is resized to `side`.
std::int64_t longer_side(const Image& image, int side) {
  return static_cast<std::int64_t>(side) * std::max(image.width, image.height) / std::min(image.width, image.height);
}

}  // namespace

ImageBox drawn_crop(int width, int height, const ImageSettings& settings, std::uint64_t seed, std::int64_t place) {
  const double area = static_cast<double>(width) * height;
  const auto& [smallest, largest] = settings.crop_scale;
  for (std::uint64_t attempt = 0; attempt < 10; ++attempt) {
    const auto words = philox({seed, philox_stream("image crop", attempt)}, static_cast<std::uint64_t>(place));
    const double target = area * (smallest + (largest - smallest) * unit(words[0])),
                 low = std::log(settings.crop_ratio[0]),
                 ratio = std::exp(low + (std::log(settings.crop_ratio[1]) - low) * unit(words[1]));
    const double w = std::nearbyint(std::sqrt(target * ratio)), h = std::nearbyint(std::sqrt(target / ratio));
    if (w > 0 && w <= width && h > 0 && h <= height)
      return {drawn_below(words[3], width - static_cast<int>(w) + 1),
              drawn_below(words[2], height - static_cast<int>(h) + 1), static_cast<int>(w), static_cast<int>(h)};
  }
  return central_crop(width, height, settings.crop_ratio);
}

bool drawn_flip(double share, std::uint64_t seed, std::int64_t place) {
  return unit(philox({seed, philox_stream("image flip")}, static_cast<std::uint64_t>(place))[0]) < share;
}

Image training_view(const Image& image, const ImageSettings& settings, std::uint64_t seed, std::int64_t place) {
  Image view = settings.draws_crop ? resize_part(image, drawn_crop(image.width, image.height, settings, seed, place),
                                                 settings.size, settings.size, settings.filter)
                                   : evaluation_view(image, settings);
  if (drawn_flip(settings.flip, seed, place)) mirror(view);
  return view;
}

std::string resize_fault(const Image& image, const ImageSettings& settings) {
  const std::int64_t side = settings.shorter_side, longer = longer_side(image, settings.shorter_side);
  if (static_cast<std::uint64_t>(side * longer) <= kMostPixels) return "";
  return fmt::format("{} x {} pixels become {} x {} = {} when the shorter side is resized", image.width, image.height,
                     std::max(side, longer), side, side * longer);
}

Image with_shorter_side(const Image& image, const ImageSettings& settings) {
  const int side = settings.shorter_side, longer = static_cast<int>(longer_side(image, side));
  const bool is_wide = image.width > image.height;
  return resize_part(image, {.width = image.width, .height = image.height}, is_wide ? longer : side,
                     is_wide ? side : longer, settings.filter);
}

Image evaluation_view(const Image& image, const ImageSettings& settings) {
  const ImageBox full{.width = image.width, .height = image.height};
  const int size = settings.size;
  if (settings.shorter_side == 0) return resize_part(image, full, size, size, settings.filter);
  const Image resized = with_shorter_side(image, settings);
  const ImageBox centre{rounded((resized.width - size) / 2.0), rounded((resized.height - size) / 2.0), size, size};
  return resize_part(resized, centre, size, size, settings.filter);
}

void write_normalised(const Image& image, const ImageSettings& settings, float* numbers) {
  for (std::size_t colour = 0; colour < kColours; ++colour) {
    const auto mean = static_cast<float>(settings.mean[colour]);
    const auto deviation = static_cast<float>(settings.deviation[colour]);
    for (std::size_t i = colour; i < image.pixels.size(); i += kColours)
      *numbers++ = (static_cast<float>(image.pixels[i] * settings.scale) - mean) / deviation;
  }
}

}  // namespace gantry

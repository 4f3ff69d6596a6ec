#include "gantry/data/images/resample.h"

#include <algorithm>
#include <cmath>

namespace gantry {
namespace {

constexpr int kWeightBits = 22;

// The inputs of one output number: consecutive numbers from `first` on, and their weights.
struct Taps {
  int first = 0;
  std::vector<std::int32_t> weights;
};

double bilinear(double x) { return std::max(0.0, 1 - std::abs(x)); }

double bicubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0;
}

Taps taps_at(int out, double scale, int size, ImageFilter filter) {
  const double widened = std::max(scale, 1.0), reach = (filter == ImageFilter::kBilinear ? 1 : 2) * widened,
               centre = (out + 0.5) * scale, narrow = 1 / widened;
  const int first = std::max(0, static_cast<int>(std::trunc(centre - reach + 0.5))),
            end = std::min(size, static_cast<int>(std::trunc(centre + reach + 0.5)));
  std::vector<double> weights;
  double sum = 0;
  for (int i = first; i < end; ++i) {
    const double at = (i - centre + 0.5) * narrow;
    weights.push_back(filter == ImageFilter::kBilinear ? bilinear(at) : bicubic(at));
    sum += weights.back();
  }
  Taps taps{.first = first};
  for (const double weight : weights) {
    const double scaled = (sum == 0 ? weight : weight / sum) * (1 << kWeightBits);
    taps.weights.push_back(static_cast<std::int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5));
  }
  return taps;
}

std::vector<Taps> taps_of(int from, int to, ImageFilter filter) {
  std::vector<Taps> all;
  for (int out = 0; out < to; ++out) all.push_back(taps_at(out, static_cast<double>(from) / to, from, filter));
  return all;
}

// Returns the weighted sum of numbers that are `stride` bytes apart.
std::uint8_t weighted(const std::uint8_t* from, std::ptrdiff_t stride, const Taps& taps) {
  std::int32_t sum = 1 << (kWeightBits - 1);
  for (const std::int32_t weight : taps.weights) {
    sum += weight * *from;
    from += stride;
  }
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

Image crop(const Image& image, const ImageBox& part) {
  Image cropped(part.width, part.height);
  for (int y = 0; y < part.height; ++y)
    std::copy_n(image.row(part.top + y) + part.left * kPixelBytes, part.width * kPixelBytes, cropped.row(y));
  return cropped;
}

}  // namespace

Image resize_part(const Image& image, const ImageBox& part, int width, int height, ImageFilter filter) {
  Image wide(width, part.height);
  if (width == part.width) {
    wide = crop(image, part);
  } else {
    const std::vector<Taps> taps = taps_of(part.width, width, filter);
    for (int y = 0; y < part.height; ++y) {
      const std::uint8_t* from = image.row(part.top + y) + part.left * kPixelBytes;
      std::uint8_t* to = wide.row(y);
      for (const Taps& each : taps)
        for (int colour = 0; colour < kColours; ++colour)
          *to++ = weighted(from + each.first * kPixelBytes + colour, kPixelBytes, each);
    }
  }
  if (height == part.height) return wide;
  const std::vector<Taps> taps = taps_of(part.height, height, filter);
  Image all(width, height);
  for (int y = 0; y < height; ++y) {
    const Taps& each = taps[static_cast<std::size_t>(y)];
    const std::uint8_t* from = wide.row(each.first);
    std::uint8_t* to = all.row(y);
    for (int i = 0; i < width * kColours; ++i) to[i] = weighted(from + i, width * kPixelBytes, each);
  }
  return all;
}

}  // namespace gantry

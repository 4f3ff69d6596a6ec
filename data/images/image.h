// An image as bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gantry {

inline constexpr int kColours = 3;
inline constexpr std::ptrdiff_t kPixelBytes = kColours;

// Red, green and blue of each pixel, row after row.
struct Image {
  Image() = default;
  Image(int w, int h) : width(w), height(h), pixels(static_cast<std::size_t>(w) * static_cast<std::size_t>(h) * 3) {}

  std::uint8_t* row(int y) { return pixels.data() + static_cast<std::size_t>(y) * static_cast<std::size_t>(width) * 3; }
  const std::uint8_t* row(int y) const { return const_cast<Image*>(this)->row(y); }

  int width = 0, height = 0;
  std::vector<std::uint8_t> pixels;
};

// A rectangular part of an image, in pixels.
struct ImageBox {
  int left = 0, top = 0, width = 0, height = 0;
};

}  // namespace gantry

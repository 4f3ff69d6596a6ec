// JPEG and PNG files, by libjpeg-turbo and libpng.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "gantry/data/images/image.h"

namespace gantry {

inline constexpr std::uint64_t kMostPixels = 178956970;  // Pillow's
inline constexpr std::uint64_t kMostSide = 1 << 16;      // a line of a million pixels is no picture

// The picture in a file's bytes, whose first ones say whether it is JPEG or PNG; `name` stands for the file in errors.
// As Pillow's convert("RGB"): grey becomes three equal colours, transparency is left out, of 16 bits the upper 8 count,
// CMYK is read as Adobe writes it, and neither orientation nor colour profile counts. InputError, one line, for what is
// broken, truncated, of another kind, or larger than `most_pixels` or than kMostSide on a side.
Image decode_image(std::span<const std::byte> bytes, const std::string& name, std::uint64_t most_pixels = kMostPixels);

// The same of a file, which is mapped while it is read.
Image read_image(const std::filesystem::path& path);

// The two readers. `fault` is what is wrong, "" for nothing.
bool is_jpeg(std::span<const std::byte> bytes);
bool is_png(std::span<const std::byte> bytes);
std::string decode_jpeg(std::span<const std::byte> bytes, std::uint64_t most_pixels, Image& image);
std::string decode_png(std::span<const std::byte> bytes, std::uint64_t most_pixels, Image& image);
// Why a picture of so many pixels is not read; "" for none.
std::string size_fault(std::uint64_t width, std::uint64_t height, std::uint64_t most_pixels = kMostPixels);

}  // namespace gantry

// Decodes JPEG and PNG files with libjpeg-turbo and libpng.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "gantry/data/images/image.h"

namespace gantry {

inline constexpr std::uint64_t kMostPixels = 178956970;  // Pillow's limit
inline constexpr std::uint64_t kMostSide = 1 << 16;      // rejects files such as one row of a million pixels

// Decodes the bytes of a file. The first bytes decide between JPEG and PNG. `name` is the file's name in
// errors. The result is that of Pillow's convert("RGB"): grey becomes three equal colours, transparency is
// dropped, and CMYK is read as Adobe writes it. 16-bit values keep their upper 8 bits; Pillow clips grey ones at
// 255. Orientation and colour profile are ignored. Throws InputError with one line if the file is broken, truncated, of
// another kind, or has more than `most_pixels` pixels or more than kMostSide pixels on a side.
Image decode_image(std::span<const std::byte> bytes, const std::string& name, std::uint64_t most_pixels = kMostPixels);

// Decode a file, which is mapped while it is read. The second one turns photos upright (data/images/orientation.h).
Image read_image(const std::filesystem::path& path);
Image read_upright_image(const std::filesystem::path& path);

// The two decoders. decode_jpeg() and decode_png() return the fault of the file; "" if there is none.
bool is_jpeg(std::span<const std::byte> bytes);
bool is_png(std::span<const std::byte> bytes);
std::string decode_jpeg(std::span<const std::byte> bytes, std::uint64_t most_pixels, Image& image);
std::string decode_png(std::span<const std::byte> bytes, std::uint64_t most_pixels, Image& image);
// Returns the reason why an image of this size is rejected; "" if it is not.
std::string size_fault(std::uint64_t width, std::uint64_t height, std::uint64_t most_pixels = kMostPixels);

}  // namespace gantry

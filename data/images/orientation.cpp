#include "gantry/data/images/orientation.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "gantry/data/images/image_file.h"

namespace gantry {
namespace {

using Bytes = std::span<const std::byte>;

constexpr int kUpright = 1;

bool begins_with(Bytes bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

// The number of `count` bytes at a place; 0 beyond the end.
std::uint32_t number_at(Bytes bytes, std::size_t at, std::size_t count, bool little_endian) {
  if (at > bytes.size() || count > bytes.size() - at) return 0;
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < count; ++i)
    number = number << 8 | std::to_integer<std::uint32_t>(bytes[at + (little_endian ? count - 1 - i : i)]);
  return number;
}

// Exif is a TIFF file: the first directory has entries of 12 bytes, each a tag, a type, a count and a value.
int orientation_of_exif(Bytes exif) {
  constexpr std::uint32_t kOrientation = 274, kShort = 3, kLong = 4;
  constexpr std::size_t kEntry = 12;
  const bool little = begins_with(exif, "II");
  if (!little && !begins_with(exif, "MM")) return kUpright;
  const std::size_t directory = number_at(exif, 4, 4, little);
  const std::size_t entries = number_at(exif, directory, 2, little);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + i * kEntry;
    if (entry + kEntry > exif.size()) break;
    const std::uint32_t type = number_at(exif, entry + 2, 2, little);
    if (number_at(exif, entry, 2, little) != kOrientation || (type != kShort && type != kLong)) continue;
    const std::uint32_t value = number_at(exif, entry + 8, type == kShort ? 2 : 4, little);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : kUpright;
  }
  return kUpright;
}

// The segments before the pixels each have a mark, and a length that includes its own two bytes.
Bytes exif_of_jpeg(Bytes file) {
  constexpr std::uint32_t kExifMark = 0xFFE1, kPixelsMark = 0xFFDA;
  constexpr std::string_view kName("Exif\0\0", 6);
  for (std::size_t at = 2; at + 4 <= file.size();) {
    const std::uint32_t mark = number_at(file, at, 2, /*little_endian=*/false);
    const std::size_t length = number_at(file, at + 2, 2, /*little_endian=*/false);
    if (mark < 0xFF00 || mark == kPixelsMark || length < 2 || length > file.size() - at - 2) break;
    const Bytes content = file.subspan(at + 4, length - 2);
    if (mark == kExifMark && begins_with(content, kName)) return content.subspan(kName.size());
    at += 2 + length;
  }
  return {};
}

// Chunks have a length, a name, the content, and four bytes of a sum.
Bytes exif_of_png(Bytes file) {
  constexpr std::size_t kAround = 12;
  for (std::size_t at = 8; at + kAround <= file.size();) {
    const std::size_t length = number_at(file, at, 4, /*little_endian=*/false);
    if (length > file.size() - at - kAround) break;
    if (begins_with(file.subspan(at + 4), "eXIf")) return file.subspan(at + 8, length);
    at += kAround + length;
  }
  return {};
}

}  // namespace

int orientation_of(Bytes file) {
  if (is_jpeg(file)) return orientation_of_exif(exif_of_jpeg(file));
  return is_png(file) ? orientation_of_exif(exif_of_png(file)) : kUpright;
}

Image upright(Image image, int orientation) {
  if (orientation == kUpright) return image;
  const bool swaps = orientation >= 5;
  const bool mirrors_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool mirrors_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image turned(swaps ? image.height : image.width, swaps ? image.width : image.height);
  for (int y = 0; y < turned.height; ++y)
    for (int x = 0; x < turned.width; ++x) {
      const int column = swaps ? y : x, row = swaps ? x : y;
      const std::uint8_t* from = image.row(mirrors_y ? image.height - 1 - row : row) +
                                 kPixelBytes * (mirrors_x ? image.width - 1 - column : column);
      std::copy_n(from, kColours, turned.row(y) + kPixelBytes * x);
    }
  return turned;
}

}  // namespace gantry

#include "gantry/data/images/image_file.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/core/mapped_file.h"
#include "gantry/data/images/orientation.h"

namespace gantry {

std::string size_fault(std::uint64_t width, std::uint64_t height, std::uint64_t most_pixels) {
  if (std::max(width, height) > kMostSide)
    return fmt::format("a side of {} pixels is longer than {}", std::max(width, height), kMostSide);
  if (width * height <= most_pixels) return "";
  return fmt::format("{} x {} = {} pixels are more than {}", width, height, width * height, most_pixels);
}

Image decode_image(std::span<const std::byte> bytes, const std::string& name, std::uint64_t most_pixels) {
  Image image;
  const bool jpeg = is_jpeg(bytes);
  if (!jpeg && !is_png(bytes))
    throw InputError({name, "the first bytes are not those of a JPEG or PNG image", "a JPEG or PNG file",
                      "convert the file, or remove it from the directory"});
  const std::string fault = jpeg ? decode_jpeg(bytes, most_pixels, image) : decode_png(bytes, most_pixels, image);
  if (!fault.empty())
    throw InputError({name, fmt::format("the {} image cannot be decoded: {}", jpeg ? "JPEG" : "PNG", fault),
                      "a complete image", "replace the file, or remove it from the directory"});
  return image;
}

Image read_image(const std::filesystem::path& path) { return decode_image(MappedFile(path).bytes(), path.string()); }

Image read_upright_image(const std::filesystem::path& path) {
  const MappedFile file(path);
  return upright(decode_image(file.bytes(), path.string()), orientation_of(file.bytes()));
}

}  // namespace gantry

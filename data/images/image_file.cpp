#include "gantry/data/images/image_file.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/core/mapped_file.h"

namespace gantry {

std::string size_fault(std::uint64_t width, std::uint64_t height) {
  constexpr std::uint64_t kMostPixels = 178956970;
  if (width * height <= kMostPixels) return "";
  return fmt::format("{} x {} = {} pixels are more than {}", width, height, width * height, kMostPixels);
}

Image decode_image(std::span<const std::byte> bytes, const std::string& name) {
  Image image;
  const bool jpeg = is_jpeg(bytes);
  if (!jpeg && !is_png(bytes))
    throw InputError({name, "is no JPEG or PNG picture by its first bytes", "one of these",
                      "convert the file, or take it out of the folder"});
  const std::string fault = jpeg ? decode_jpeg(bytes, image) : decode_png(bytes, image);
  if (!fault.empty())
    throw InputError({name, fmt::format("is no {} that can be read: {}", jpeg ? "JPEG" : "PNG", fault),
                      "a whole picture", "replace the file, or take it out of the folder"});
  return image;
}

Image read_image(const std::filesystem::path& path) { return decode_image(MappedFile(path).bytes(), path.string()); }

}  // namespace gantry

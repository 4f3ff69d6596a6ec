#include "gantry/data/images/image_processor.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/core/mapped_file.h"
#include "gantry/data/images/image_file.h"
#include "gantry/data/images/processor_keys.h"
#include "gantry/data/images/transform.h"

namespace gantry {
namespace {

constexpr const char *kOwnFile = "/preprocessor_config.json", *kSharedFile = "/processor_config.json";
constexpr std::int64_t kMostRatio = 200;  // longer side / shorter side, for Qwen2-VL

ProcessorKeys keys_of_folder(const std::string& folder) {
  const std::string own = folder + kOwnFile, shared = folder + kSharedFile;
  if (!path_exists(own) && !path_exists(shared))
    throw InputError({folder, "it has neither preprocessor_config.json nor processor_config.json",
                      "the configuration of the model's image processor", "copy it from the model's repository"});
  if (path_exists(shared)) {
    const ProcessorKeys all(MappedFile(shared).text(), shared);
    if (all.has("image_processor") && all.values()["image_processor"].is_object())
      return {all.values()["image_processor"], shared};
    if (!path_exists(own)) all.refuse("image_processor", "the configuration of an image processor");
  }
  return {MappedFile(own).text(), own};
}

// A limit of pixels: size.shortest_edge and size.longest_edge, in older files min_pixels and max_pixels.
std::int64_t pixels_of(const ProcessorKeys& keys, const char* older, const char* edge, std::int64_t initial) {
  const auto most = static_cast<std::int64_t>(kMostPixels);
  if (keys.has(older)) return keys.count(older, initial, most);
  if (!keys.has("size") || !keys.values()["size"].is_object()) return initial;
  return ProcessorKeys(keys.values()["size"], keys.path()).count(edge, initial, most);
}

std::int64_t longest_edge_of(const ProcessorKeys& keys, std::int64_t initial) {
  if (!keys.has("size")) return initial;
  const auto& size = keys.values()["size"];
  if (!size.is_object() || !size.contains("longest_edge")) keys.refuse("size", "{longest_edge}");
  return ProcessorKeys(size, keys.path()).count("longest_edge", initial, std::int64_t{1} << 14);
}

void require_full_processing(const ProcessorKeys& keys) {
  if (!keys.flag("do_resize", true)) keys.refuse("do_resize", "true, because the sides must fit the patches");
  if (keys.flag("do_pan_and_scan", false)) keys.refuse("do_pan_and_scan", "false");
}

std::int64_t rounded_to(double length, std::int64_t unit) {
  return static_cast<std::int64_t>(std::nearbyint(length / static_cast<double>(unit))) * unit;
}

// Qwen2-VL's: multiples of `unit` near the sides, whose product is within the limits.
ImageSize grid_size(const ImageSize& size, const ImageProcessor& processor) {
  const std::int64_t unit = processor.sizes.side();
  const auto height = static_cast<double>(size.height), width = static_cast<double>(size.width);
  const ImageSize near{rounded_to(height, unit), rounded_to(width, unit)};
  const auto whole = [unit](double length) { return static_cast<std::int64_t>(length) * unit; };
  const auto units = static_cast<double>(unit);
  if (near.height * near.width > processor.most_pixels) {
    const double shrink = std::sqrt(height * width / static_cast<double>(processor.most_pixels));
    return {std::max(unit, whole(std::floor(height / shrink / units))),
            std::max(unit, whole(std::floor(width / shrink / units)))};
  }
  if (near.height * near.width < processor.least_pixels) {
    const double grow = std::sqrt(static_cast<double>(processor.least_pixels) / (height * width));
    return {whole(std::ceil(height * grow / units)), whole(std::ceil(width * grow / units))};
  }
  return near;
}

// Pixtral's: sides of at most longest_edge, rounded up to multiples of `unit`.
ImageSize pixtral_size(ImageSize size, const ImageProcessor& processor) {
  const std::int64_t unit = processor.sizes.side();
  const auto most = static_cast<double>(processor.longest_edge);
  const double ratio = std::max(static_cast<double>(size.height) / most, static_cast<double>(size.width) / most);
  const auto fitted = [&](std::int64_t side) {
    const double length = ratio > 1 ? std::floor(static_cast<double>(side) / ratio) : static_cast<double>(side);
    return ((static_cast<std::int64_t>(length) - 1) / unit + 1) * unit;
  };
  return {std::max(unit, fitted(size.height)), std::max(unit, fitted(size.width))};
}

Image square_view(const Image& image, const ImageSettings& settings, const std::string& name) {
  const int size = settings.size;
  if (settings.shorter_side == 0) return evaluation_view(image, settings);
  if (const std::string fault = resize_fault(image, settings); !fault.empty())
    throw InputError({name, fault, fmt::format("at most {}", kMostPixels), "crop the image"});
  const Image resized = with_shorter_side(image, settings);
  const ImageBox centre{(resized.width - size) / 2, (resized.height - size) / 2, size, size};
  return resize_part(resized, centre, size, size, settings.filter);
}

// Patches in squares of merge x merge, with the pixels of each patch `frames` times.
std::vector<float> in_patches(const std::vector<float>& numbers, const ImageSize& size, const PatchSizes& sizes) {
  const std::int64_t patch = sizes.patch, merge = sizes.merge, side = sizes.side();
  std::vector<float> patches;
  patches.reserve(numbers.size() * static_cast<std::size_t>(sizes.frames));
  const auto add_patch = [&](std::int64_t top, std::int64_t left) {
    for (std::int64_t colour = 0; colour < kColours; ++colour)
      for (std::int64_t frame = 0; frame < sizes.frames; ++frame)
        for (std::int64_t row = top; row < top + patch; ++row) {
          const auto from = numbers.begin() + (colour * size.height + row) * size.width + left;
          patches.insert(patches.end(), from, from + patch);
        }
  };
  for (std::int64_t top = 0; top < size.height; top += side)
    for (std::int64_t left = 0; left < size.width; left += side)
      for (std::int64_t place = 0; place < merge * merge; ++place)
        add_patch(top + place / merge * patch, left + place % merge * patch);
  return patches;
}

// The patches of Qwen2-VL's processor must be those of the model.
void require_patches(const ProcessorKeys& keys, const PatchSizes& sizes) {
  const std::pair<const char*, std::int64_t> known[] = {
      {"patch_size", sizes.patch}, {"merge_size", sizes.merge}, {"temporal_patch_size", sizes.frames}};
  for (const auto& [key, value] : known)
    if (keys.has(key) && keys.values()[key] != value)
      keys.refuse(key, fmt::format("{}, the value of the model", value));
}

}  // namespace

bool has_image_processor(const std::string& folder) {
  return path_exists(folder + kOwnFile) || path_exists(folder + kSharedFile);
}

ImageProcessor read_image_processor(const std::string& folder, const PatchSizes& sizes) {
  const ProcessorKeys keys = keys_of_folder(folder);
  require_full_processing(keys);
  ImageProcessor processor{.sizes = sizes, .settings = {}};
  if (sizes.kind == ProcessorKind::kSquare) {
    processor.settings = read_square_settings(keys, sizes.is_clip);
    if (processor.settings.size != sizes.size)
      keys.refuse(keys.flag("do_center_crop", processor.settings.crops) ? "crop_size" : "size",
                  fmt::format("{}, the image_size of the model", sizes.size));
    return processor;
  }
  processor.settings = kSettingsOfClip;
  read_colours(keys, processor.settings);
  if (sizes.kind == ProcessorKind::kPixtral) {
    processor.longest_edge = longest_edge_of(keys, processor.longest_edge);
    return processor;
  }
  processor.least_pixels = pixels_of(keys, "min_pixels", "shortest_edge", processor.least_pixels);
  processor.most_pixels = pixels_of(keys, "max_pixels", "longest_edge", processor.most_pixels);
  if (processor.least_pixels > processor.most_pixels)
    keys.refuse("min_pixels", fmt::format("at most max_pixels {}", processor.most_pixels));
  require_patches(keys, sizes);
  return processor;
}

ImageSize processed_size(const ImageSize& size, const ImageProcessor& processor, const std::string& name) {
  const std::int64_t longer = std::max(size.height, size.width), shorter = std::min(size.height, size.width);
  switch (processor.sizes.kind) {
    case ProcessorKind::kSquare:
      return {processor.sizes.size, processor.sizes.size};
    case ProcessorKind::kGrid:
      if (longer > kMostRatio * shorter)
        throw InputError(
            {name,
             fmt::format("the image has {} x {} pixels, and the longer side is more than {} times the shorter one",
                         size.width, size.height, kMostRatio),
             "a smaller ratio", "crop the image"});
      return grid_size(size, processor);
    case ProcessorKind::kPixtral:
      break;
  }
  return pixtral_size(size, processor);
}

ProcessedImage process_image(const Image& image, const ImageProcessor& processor, const std::string& name) {
  ProcessedImage made{.size = processed_size({image.height, image.width}, processor, name), .numbers = {}};
  const Image view =
      processor.sizes.kind == ProcessorKind::kSquare
          ? square_view(image, processor.settings, name)
          : resize_part(image, {.width = image.width, .height = image.height}, static_cast<int>(made.size.width),
                        static_cast<int>(made.size.height), processor.settings.filter);
  made.numbers.resize(view.pixels.size());
  write_normalised(view, processor.settings, made.numbers.data());
  if (processor.sizes.kind == ProcessorKind::kGrid) made.numbers = in_patches(made.numbers, made.size, processor.sizes);
  return made;
}

}  // namespace gantry

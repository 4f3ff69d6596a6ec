#include "gantry/data/images/image_settings.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/core/mapped_file.h"
#include "gantry/data/images/processor_keys.h"

namespace gantry {
namespace {

// Pillow's numbers.
ImageFilter filter_of(const ProcessorKeys& keys, ImageFilter initial) {
  const double filter = keys.number("resample", initial == ImageFilter::kBilinear ? 2 : 3);
  if (filter != 2 && filter != 3) keys.refuse("resample", "2 (bilinear) or 3 (bicubic)");
  return filter == 2 ? ImageFilter::kBilinear : ImageFilter::kBicubic;
}

// The defaults of the processor's class.
ImageSettings initial_settings(const ProcessorKeys& keys, bool is_clip) {
  if (!keys.has("image_processor_type") || !keys.values()["image_processor_type"].is_string())
    return is_clip ? kSettingsOfClip : ImageSettings();
  const auto type = keys.values()["image_processor_type"].get<std::string>();
  if (type.starts_with("CLIP") || type.starts_with("Llava")) return kSettingsOfClip;
  return {.filter = type.starts_with("Siglip") ? ImageFilter::kBicubic : ImageFilter::kBilinear};
}

// `by_shorter`: a size that is a number is the shorter side, as for CLIP. Otherwise images become squares.
void read_sizes(const ProcessorKeys& keys, bool by_shorter, ImageSettings& settings) {
  if (!keys.flag("do_resize", true)) keys.refuse("do_resize", "true, because the model needs images of one size");
  settings.crops = keys.flag("do_center_crop", settings.crops);
  const int resized = keys.side("size", by_shorter), crop = settings.crops ? keys.side("crop_size") : 0;
  if (resized == 0) keys.refuse("size", "a number, {height, width} that are equal, or {shortest_edge}");
  if (crop < 0) keys.refuse("crop_size", "a number, or {height, width} that are equal");
  if (crop > std::abs(resized)) keys.refuse("crop_size", fmt::format("at most the size {}", std::abs(resized)));
  settings.size = crop > 0 ? crop : std::abs(resized);
  settings.shorter_side = resized < 0 ? -resized : 0;
  if (resized > 0 && crop > 0 && crop != resized)
    keys.refuse("crop_size", fmt::format("the size {}, or a size of {{shortest_edge}}", resized));
}

void check_picture_size(const ImageSettings& settings, const ImageConfig& asked, int size) {
  if (settings.size == size) return;
  throw ConfigError(
      {asked.image_size ? "data.image_size" : "data.format",
       fmt::format("{0}{1} x {1} pixels{2} do not fit the model, which reads {3} x {3}",
                   asked.image_size ? "" : "images of ", settings.size,
                   asked.image_size ? "" : " from preprocessor_config.json", size),
       fmt::format("{}", size),
       asked.image_size ? "change it, or model.config.image_size" : "set data.image_size, or model.config.image_size"});
}

void take_colours(const std::vector<double>& asked, std::array<double, kColours>& values) {
  if (!asked.empty()) std::copy_n(asked.begin(), kColours, values.begin());
}

}  // namespace

ImageSettings image_settings_of(const DataConfig& data, const std::string& model_folder, int size) {
  const ImageConfig& asked = data.pictures;
  auto found = read_image_settings(model_folder);
  if (!found) found = read_image_settings(data.path);
  ImageSettings settings = found.value_or(ImageSettings{.size = size, .shorter_side = size});
  settings.size = asked.image_size.value_or(settings.size);
  check_picture_size(settings, asked, size);
  settings.shorter_side = asked.resize.value_or(settings.shorter_side);
  if (settings.shorter_side > 0 && settings.shorter_side < size)
    throw ConfigError({"data.resize",
                       fmt::format("{} pixels on the shorter side{} are too few to crop {}", settings.shorter_side,
                                   asked.resize ? "" : " from preprocessor_config.json", size),
                       fmt::format("at least {}, or 0 to resize the full image", size),
                       asked.resize ? "increase data.resize" : "set data.resize"});
  if (!asked.interpolation.empty())
    settings.filter = asked.interpolation == "bicubic" ? ImageFilter::kBicubic : ImageFilter::kBilinear;
  take_colours(asked.mean, settings.mean);
  take_colours(asked.deviation, settings.deviation);
  settings.draws_crop = asked.crop == "random";
  settings.crop_scale = {asked.crop_scale[0], asked.crop_scale[1]};
  settings.crop_ratio = {asked.crop_ratio[0], asked.crop_ratio[1]};
  settings.flip = asked.flip;
  return settings;
}

std::optional<ImageSettings> read_image_settings(const std::string& folder) {
  const std::string path = folder + "/preprocessor_config.json";
  if (folder.empty() || !path_exists(path)) return std::nullopt;
  const MappedFile file(path);
  return parse_image_settings(file.text(), path);
}

void read_colours(const ProcessorKeys& keys, ImageSettings& settings) {
  settings.filter = filter_of(keys, settings.filter);
  settings.scale = keys.flag("do_rescale", true) ? keys.number("rescale_factor", settings.scale) : 1;
  keys.colours("image_mean", settings.mean, -1e6);
  keys.colours("image_std", settings.deviation, 0);
  if (!keys.flag("do_normalize", true)) settings.mean = {0, 0, 0}, settings.deviation = {1, 1, 1};
}

ImageSettings read_square_settings(const ProcessorKeys& keys, bool is_clip) {
  ImageSettings settings = initial_settings(keys, is_clip);
  read_sizes(keys, settings.crops, settings);
  read_colours(keys, settings);
  if (keys.flag("do_pad", false)) keys.refuse("do_pad", "false");
  return settings;
}

ImageSettings parse_image_settings(std::string_view text, const std::string& path) {
  return read_square_settings(ProcessorKeys(text, path));
}

}  // namespace gantry

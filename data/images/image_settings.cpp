#include "gantry/data/images/image_settings.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/mapped_file.h"
#include "gantry/core/paths.h"
#include "gantry/core/strict_json.h"

namespace gantry {
namespace {

using nlohmann::json;

// The keys of one file, of which each fault names it.
class ProcessorKeys {
 public:
  ProcessorKeys(std::string_view text, const std::string& path) : path_(path) {
    std::string fault = parse_strict(text, keys_);
    if (fault.empty() && !keys_.is_object()) fault = "the file is not a JSON object";
    if (!fault.empty()) throw InputError({path, fault, "the configuration of an image processor", "copy it again"});
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const {
    throw InputError({path_, fmt::format("'{}' is {}", key, keys_.contains(key) ? keys_[key].dump() : "missing"),
                      expected, "change it, or prepare the images yourself: docs/data_labelled.md, \"Tensors\""});
  }

  bool flag(const std::string& key, bool initial) const {
    if (!has(key)) return initial;
    if (!keys_[key].is_boolean()) refuse(key, "true or false");
    return keys_[key];
  }

  double number(const std::string& key, double initial) const {
    if (!has(key)) return initial;
    if (!keys_[key].is_number() || !(keys_[key] > 0)) refuse(key, "a number above 0");
    return keys_[key];
  }

  void colours(const std::string& key, std::array<double, kColours>& values, double above) const {
    if (!has(key)) return;
    const json& list = keys_[key];
    if (!list.is_array() || list.size() != kColours) refuse(key, "a number for each of three colours");
    for (std::size_t i = 0; i < kColours; ++i) {
      if (!list[i].is_number() || !(list[i] > above)) refuse(key, fmt::format("numbers above {}", above));
      values[i] = list[i];
    }
  }

  // A number n, or {height: n, width: n}: n; {shortest_edge: n}: -n; 0 without the key.
  int side(const std::string& key) const {
    if (!has(key)) return 0;
    const json& size = keys_[key];
    if (size.is_object() && size.size() == 1 && size.contains("shortest_edge"))
      return -length(key, size["shortest_edge"]);
    if (!size.is_object()) return length(key, size);
    if (size.size() != 2 || !size.contains("height") || !size.contains("width") || size["height"] != size["width"])
      refuse(key, "a number, {height, width} that are equal, or {shortest_edge}");
    return length(key, size["height"]);
  }

 private:
  bool has(const std::string& key) const { return keys_.contains(key) && !keys_[key].is_null(); }
  int length(const std::string& key, const json& value) const {
    const auto count = count_in(value);
    if (!count || *count < 1 || *count > (1 << 14)) refuse(key, "from 1 to 16384 pixels");
    return static_cast<int>(*count);
  }

  std::string path_;
  json keys_;
};

// Pillow's numbers.
ImageFilter filter_of(const ProcessorKeys& keys) {
  const double filter = keys.number("resample", 2);
  if (filter != 2 && filter != 3) keys.refuse("resample", "2 (bilinear) or 3 (bicubic)");
  return filter == 2 ? ImageFilter::kBilinear : ImageFilter::kBicubic;
}

void read_sizes(const ProcessorKeys& keys, ImageSettings& settings) {
  if (!keys.flag("do_resize", true)) keys.refuse("do_resize", "true, because the model needs images of one size");
  const int resized = keys.side("size"), crop = keys.flag("do_center_crop", false) ? keys.side("crop_size") : 0;
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

ImageSettings parse_image_settings(std::string_view text, const std::string& path) {
  const ProcessorKeys keys(text, path);
  ImageSettings settings;
  read_sizes(keys, settings);
  settings.filter = filter_of(keys);
  settings.scale = keys.flag("do_rescale", true) ? keys.number("rescale_factor", settings.scale) : 1;
  keys.colours("image_mean", settings.mean, -1e6);
  keys.colours("image_std", settings.deviation, 0);
  if (!keys.flag("do_normalize", true)) settings.mean = {0, 0, 0}, settings.deviation = {1, 1, 1};
  if (keys.flag("do_pad", false)) keys.refuse("do_pad", "false");
  return settings;
}

}  // namespace gantry

#include "gantry/data/images/image_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/data/images/image_file.h"
#include "gantry/data/images/transform.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

struct LabelledFile {
  std::string path;  // below the folder
  std::int32_t label = 0;
};

class ImageFolder final : public DrawnDataset {
 public:
  ImageFolder(fs::path folder, std::vector<LabelledFile> files, std::int64_t classes, const ImageFolderOptions& options)
      : folder_(std::move(folder)), files_(std::move(files)), classes_(classes), options_(options) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  std::int64_t sequence_length() const override { return 0; }
  bool is_slow() const override { return true; }
  std::string summary() const override {
    return fmt::format("{}: {} images of {} classes", folder_.string(), files_.size(), classes_);
  }
  std::vector<SampleEntry> entries() const override { return image_entries(options_.settings); }
  void read_at(std::int64_t index, std::int64_t place, const NumberRow& row) const override {
    const LabelledFile& file = files_[static_cast<std::size_t>(index)];
    if (row.type() == NumberType::kInt64) {
      *row.as<std::int64_t>() = file.label;
      return;
    }
    const Image image = read_image(folder_ / file.path);
    const ImageSettings& settings = options_.settings;
    if (!options_.trains || !settings.draws_crop) require_resizable(image, file.path);
    write_normalised(
        options_.trains ? training_view(image, settings, options_.seed, place) : evaluation_view(image, settings),
        settings, row.as<float>());
  }

 private:
  void require_resizable(const Image& image, const std::string& file) const {
    if (const std::string fault = resize_fault(image, options_.settings); !fault.empty())
      throw InputError({(folder_ / file).string(), fault, fmt::format("at most {}", kMostPixels),
                        "crop it, remove it from the directory, or set data.resize: 0"});
  }

  fs::path folder_;
  std::vector<LabelledFile> files_;
  std::int64_t classes_;
  ImageFolderOptions options_;
};

std::string ending_of(const fs::path& file) {
  std::string ending = file.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + 32) : letter; });
  return ending;
}

template <std::size_t kCount>
bool is_one_of(const std::string& ending, const std::array<const char*, kCount>& endings) {
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}

void append_class(const fs::path& folder, const fs::path& name, std::int32_t label, std::vector<LabelledFile>& files) {
  constexpr std::array<const char*, 3> kRead = {".jpg", ".jpeg", ".png"};
  constexpr std::array<const char*, 8> kOthers = {".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".heic"};
  const std::size_t before = files.size();
  for (const fs::path& file : files_below(name)) {
    const std::string ending = ending_of(file);
    if (is_one_of(ending, kOthers))
      throw InputError({file.string(), "the file name does not have the extension of a JPEG or PNG image",
                        ".jpg, .jpeg or .png", "convert it, or remove it from the directory"});
    if (is_one_of(ending, kRead)) files.push_back({file.lexically_relative(folder).string(), label});
  }
  if (files.size() == before)
    throw InputError({name.string(), "the directory has no images", "at least one .jpg, .jpeg or .png for each class",
                      "add images, or remove the directory"});
}

[[noreturn]] void refuse_class(const std::string& path, const std::string& folder,
                               const std::vector<std::string>& classes, const std::string& where) {
  constexpr std::size_t kShown = 10;
  const std::vector<std::string> shown(classes.begin(),
                                       classes.begin() + static_cast<std::ptrdiff_t>(std::min(classes.size(), kShown)));
  throw InputError({where,
                    fmt::format("'{}' has the subdirectory '{}', which is not a class of the model", path, folder),
                    fmt::format("{}{}", fmt::join(shown, ", "), classes.size() > kShown ? ", ..." : ""),
                    "rename or remove the directory, or set model.config.id2label"});
}

}  // namespace

std::vector<SampleEntry> image_entries(const ImageSettings& settings) {
  const std::int64_t size = settings.size;
  return {{.name = "pixel_values",
           .length = kColours * size * size,
           .type = NumberType::kFloat32,
           .shape = {kColours, size, size}},
          {.name = "labels"}};
}

std::vector<std::string> image_classes(const std::string& path, std::int64_t labels, const std::string& where) {
  if (!is_folder(path))
    throw InputError({where, "'" + path + "' is not a directory",
                      "a directory with a subdirectory of images for each class",
                      "check the path; it is relative to the working directory"});
  std::vector<std::string> classes;
  for (const fs::path& entry : entries_of(path))
    if (is_folder(entry)) classes.push_back(entry.filename());
  if (classes.empty())
    throw InputError({where, "'" + path + "' has no subdirectories", "a subdirectory of images for each class",
                      "put the images of each class into a subdirectory with its name"});
  if (static_cast<std::int64_t>(classes.size()) > labels)
    throw InputError({where,
                      fmt::format("'{}' has {} classes, but the model distinguishes {}", path, classes.size(), labels),
                      fmt::format("at most {}", labels), "set model.config.num_labels"});
  return classes;
}

std::unique_ptr<Dataset> open_image_folder(const std::string& path, const ImageFolderOptions& options,
                                           const std::string& where, const OpenProgress& progress) {
  constexpr auto kAny = std::numeric_limits<std::int64_t>::max();
  const auto folders = image_classes(path, kAny, where);
  std::vector<LabelledFile> files;
  for (const std::string& folder : folders) {
    const auto found = std::find(options.classes.begin(), options.classes.end(), folder);
    if (found == options.classes.end()) refuse_class(path, folder, options.classes, where);
    append_class(path, fs::path(path) / folder, static_cast<std::int32_t>(found - options.classes.begin()), files);
    progress(1);
  }
  return std::make_unique<ImageFolder>(path, std::move(files), static_cast<std::int64_t>(folders.size()), options);
}

SampleSource image_source(const DataConfig& config, const ImageFolderOptions& options, const std::string& key) {
  const auto open = [config, options, key](const OpenProgress& progress) {
    const auto where = [&](std::size_t i) {
      return config.sources.empty() ? key : fmt::format("data.sources[{}].path", i);
    };
    ImageFolderOptions known = options;
    if (known.classes.empty())
      known.classes =
          image_classes(config.sources.empty() ? config.path : config.sources[0].path, options.labels, where(0));
    std::vector<WeightedDataset> all;
    if (config.sources.empty()) all.push_back({open_image_folder(config.path, known, where(0), progress)});
    for (std::size_t i = 0; i < config.sources.size(); ++i)
      all.push_back({open_image_folder(config.sources[i].path, known, where(i), progress), config.sources[i].weight});
    return all;
  };
  return {.entries = image_entries(options.settings), .sequence_length = 0, .open = open};
}

}  // namespace gantry

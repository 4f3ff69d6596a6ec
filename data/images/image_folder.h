// data.format images: a directory with one directory of images per class.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gantry/data/drawn_dataset.h"
#include "gantry/data/images/image_settings.h"

namespace gantry {

struct ImageFolderOptions {
  ImageSettings settings;
  bool trains = true;       // random crops and flips; false: the evaluation view of each image
  std::uint64_t seed = 1;   // seed of the crops and flips
  std::int64_t labels = 0;  // number of classes of the model, a maximum for the data
  // Names of the classes, by label; empty: the classes of the first path.
  std::vector<std::string> classes = {};
};

// pixel_values, float32 [samples, 3, size, size], and labels [samples].
std::vector<SampleEntry> image_entries(const ImageSettings& settings);

// Returns the names of the directories in `path`, sorted; the first has label 0. Throws InputError if there
// are none, or more than `labels`. `where`: the key of the path in the configuration.
std::vector<std::string> image_classes(const std::string& path, std::int64_t labels, const std::string& where);

// Opens a directory of images. The label of an image is the index of its directory's name in options.classes.
// A class may have no directory. All files with a JPEG or PNG extension (.jpg, .jpeg, .png) in a class's
// directory and below it are used, sorted by path. Other files are skipped. Files are listed when the data
// set is opened, and read with their samples. Throws InputError for a directory without classes, a class that
// is not in the list, a class without images, and a file with the extension of another image format (.bmp,
// .gif, .tif, .webp, ...).
std::unique_ptr<Dataset> open_image_folder(const std::string& path, const ImageFolderOptions& options,
                                           const std::string& where, const OpenProgress& progress = no_progress);

// Returns the source of samples for the configuration's path, or for all its sources. Opens nothing yet.
SampleSource image_source(const DataConfig& config, const ImageFolderOptions& options, const std::string& key);

}  // namespace gantry

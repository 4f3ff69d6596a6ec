// data.format images: a folder with a folder of pictures for each class.
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
  bool trains = true;       // crops and flips are drawn; false: the centre of each
  std::uint64_t seed = 1;   // of what is drawn
  std::int64_t labels = 0;  // the most classes that the model tells apart
  // The names of the classes by label; empty: those of the first path.
  std::vector<std::string> classes = {};
};

// pixel_values, float32 [samples, 3, size, size], and labels [samples].
std::vector<SampleEntry> image_entries(const ImageSettings& settings);

// The names of the folders in `path`, sorted: the first has label 0. InputError if there are none, or more than
// `labels`. `where` names the path's place in the configuration.
std::vector<std::string> image_classes(const std::string& path, std::int64_t labels, const std::string& where);

// The label of a folder's pictures is the place of its name in options.classes; a class may lack a folder. All JPEG
// and PNG files of a folder count, in the folders below it too, sorted by path, by their endings (.jpg, .jpeg, .png);
// other files are passed over. Files are listed when it is opened, and read when a sample is. InputError for a folder
// without classes, a class that is not in the list, a class without pictures, and a picture of another kind (.bmp,
// .gif, .tif, .webp, ...), by its ending.
std::unique_ptr<Dataset> open_image_folder(const std::string& path, const ImageFolderOptions& options,
                                           const std::string& where, const OpenProgress& progress = no_progress);

// The path of the configuration, or all its sources; opens nothing yet.
SampleSource image_source(const DataConfig& config, const ImageFolderOptions& options, const std::string& key);

}  // namespace gantry

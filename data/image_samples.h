// Samples of text with the images of their lines.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gantry/data/dataset.h"
#include "gantry/data/line_images.h"

namespace gantry {

// The samples of `text`, each with its images in the form of processors, one after the other: a SampleDataset.
// `images_of`: the images of a sample, by line; may be called from several threads at once, as long as `text` exists.
// A file that occurs several times in a sample is read once.
std::unique_ptr<Dataset> with_images(std::unique_ptr<const Dataset> text, std::shared_ptr<const ImageReader> reader,
                                     std::function<std::vector<RowImages>(std::int64_t sample)> images_of);

}  // namespace gantry

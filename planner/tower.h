// The image encoder of a decoder in a plan. Every token of a sequence counts as a token of an image.
#pragma once

#include "gantry/planner/layout.h"
#include "gantry/planner/operations.h"

namespace gantry::planner {

// The images of a sample. If images have one size, these are as many whole images as its tokens allow, at least one.
// Otherwise it is one image with all of its tokens.
struct SampleImages {
  std::int64_t images = 1;                 // number of images in a sample
  std::int64_t patches = 1, features = 1;  // numbers in an image
};
SampleImages sample_images(const models::VisionSpec& vision, std::int64_t sequence);

// The numbers that a stage sends to the next one for the images of a microbatch: the patches of a tower.
double patch_numbers(const Workload& workload, const Layout& layout);

// The following functions require an image encoder. Its layers compute full images on every rank: sequences are not
// split over ranks.

PartOperations tower_layer_operations(const Workload& workload, const Layout& layout);
// From pixels to the patches before the first layer of the tower.
PartOperations patch_operations(const Workload& workload, const Layout& layout);
// From the patches after the last layer to the embeddings of image tokens.
PartOperations feature_operations(const Workload& workload, const Layout& layout);

}  // namespace gantry::planner

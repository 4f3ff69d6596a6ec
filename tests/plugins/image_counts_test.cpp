// The number of images of a batch: images that pad samples with fewer images do not count.
#include <gtest/gtest.h>

#include "gantry/plugins/step_counts.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

TEST(ImageCounts, LeaveOutPadding) {
  const torch::Tensor one = torch::ones({3, 2, 4, 4});
  EXPECT_EQ(known_images({{"pixel_values", one}}), 3);
  torch::Tensor several = torch::ones({2, 3, 2, 4, 4});
  several[1].narrow(0, 1, 2).zero_();
  EXPECT_EQ(known_images({{"pixel_values", several}}), 4);
  const torch::Tensor grids = torch::tensor({{{1, 4, 2}, {1, 2, 2}}, {{1, 2, 2}, {0, 0, 0}}});
  EXPECT_EQ(known_images({{"pixel_values", torch::ones({2, 12, 8})}, {"image_grid_thw", grids}}), 3);
  const torch::Tensor sizes = torch::tensor({{{4, 8}, {0, 0}}, {{0, 0}, {0, 0}}});
  EXPECT_EQ(known_images({{"pixel_values", torch::ones({2, 2, 3, 8, 8})}, {"image_sizes", sizes}}), 1);
}

TEST(ImageCounts, AreUnknownWithoutPixels) {
  EXPECT_EQ(known_images({{"input_ids", torch::ones({2, 4}, torch::kInt64)}}), -1);
}

TEST(ImageCounts, AddUpOverReplicas) {
  const RankCounts first{.replica = 0, .samples = 2, .images = 3}, between{.replica = 0, .samples = 2},
      second{.replica = 1, .samples = 1}, third{.replica = 2, .samples = 2, .images = 4};
  EXPECT_EQ(combine_counts({first, between, second, third}, 1).images, 7);
}

}  // namespace
}  // namespace gantry::testing

#include <gtest/gtest.h>

#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/random_context.h"

namespace gantry {
namespace {

const RandomContext kContext{.seed = 3, .step = 4};

torch::Tensor mask_of(std::vector<std::int64_t> shape, std::vector<std::int64_t> offset,
                      std::vector<std::int64_t> global) {
  return dropout_mask(torch::empty(shape), 0.25, "layer", kContext, offset, global);
}

TEST(DropoutMask, AnySliceEqualsThatOfTheFullMask) {
  const torch::Tensor full = mask_of({6, 5, 7, 9}, {0, 0, 0, 0}, {6, 5, 7, 9});
  for (int dim = 0; dim < 4; ++dim)
    for (std::int64_t begin = 0; begin < full.size(dim); ++begin) {
      std::vector<std::int64_t> shape = full.sizes().vec(), offset(4, 0);
      shape[dim] = full.size(dim) - begin;
      offset[dim] = begin;
      EXPECT_TRUE(torch::equal(mask_of(shape, offset, full.sizes().vec()), full.narrow(dim, begin, shape[dim])))
          << dim << " " << begin;
    }
}

TEST(DropoutMask, KeepsTheRightShareScaled) {
  const torch::Tensor mask = mask_of({100, 1000}, {0, 0}, {100, 1000});
  EXPECT_NEAR((mask > 0).to(torch::kFloat64).mean().item<double>(), 0.75, 0.01);
  EXPECT_FLOAT_EQ(mask.max().item<float>(), 1 / 0.75f);
}

TEST(DropoutMask, StepsAndNamesDiffer) {
  RandomContext next = kContext;
  ++next.step;
  const torch::Tensor like = torch::empty({50, 50});
  const torch::Tensor here = dropout_mask(like, 0.5, "a", kContext, {0, 0}, {50, 50});
  EXPECT_FALSE(torch::equal(here, dropout_mask(like, 0.5, "b", kContext, {0, 0}, {50, 50})));
  EXPECT_FALSE(torch::equal(here, dropout_mask(like, 0.5, "a", next, {0, 0}, {50, 50})));
}

}  // namespace
}  // namespace gantry

// Random numbers: the host generates them in runs, with the same values as the function for single elements
// on host and device.
#include "gantry/tensors/kernels/draw.h"

#include <cmath>
#include <gtest/gtest.h>
#include <numbers>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::kernels {
namespace {

const std::vector<Drawn> kLaws = {{Law::kNormal, 1, 2, 3, 4},
                                  {Law::kUniform, -2, 5, 3, 4},
                                  {Law::kBernoulli, 0.3, 0, ~0ull, 1ull << 63},
                                  {Law::kMask, 0.25, 1 / 0.75, 3, 4}};

// Generates the numbers element by element, like a device kernel.
torch::Tensor drawn_one_by_one(const torch::Tensor& like, const Drawn& drawn, std::int64_t first,
                               at::IntArrayRef in_full) {
  torch::Tensor numbers = torch::empty(like.sizes(), torch::kFloat64);
  const Box box = box_of(numbers, first, in_full);
  for (std::int64_t i = 0; i < numbers.numel(); ++i) {
    const Place place = place_in(box, i);
    numbers.data_ptr<double>()[place.in_memory] = draw_element(drawn, place.in_full);
  }
  return numbers.to(like.scalar_type());
}

TEST(Draw, RunsOnTheHostAreWhatADeviceGivesEachElement) {
  // Parts of a tensor of [5, 6, 7]: the full tensor, sharded along each dim, and one whose last dim has one element.
  const std::vector<std::int64_t> strides{42, 7, 1};
  const torch::Tensor full = torch::empty({5, 6, 7});
  struct Part {
    std::int64_t dim, begin, size;
  };
  for (const auto& type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16, torch::kFloat16})
    for (const Drawn& drawn : kLaws)
      for (const auto& [dim, begin, size] : std::vector<Part>{{0, 0, 5}, {0, 2, 3}, {1, 1, 4}, {2, 3, 2}, {2, 6, 1}}) {
        torch::Tensor out = torch::full({5, 6, 7}, -9, type);
        torch::Tensor part = out.narrow(dim, begin, size);
        draw(part, drawn, begin * strides[dim], strides);
        const torch::Tensor expected = drawn_one_by_one(part, drawn, begin * strides[dim], strides);
        EXPECT_TRUE(torch::equal(part, expected)) << "law " << static_cast<int>(drawn.law) << ", dim " << dim;
        out.narrow(dim, begin, size).fill_(-9);
        EXPECT_TRUE((out == -9).all().item<bool>()) << "wrote beside its part";
      }
}

TEST(Draw, APieceBeyondABufferGoesOn) {
  const Drawn drawn{Law::kNormal, 0, 1, 3, 4};
  torch::Tensor all = torch::empty({10000}), end = torch::empty({10000 - 4095});
  draw(all, drawn, 0, {1});
  draw(end, drawn, 4095, {1});
  EXPECT_TRUE(torch::equal(all.narrow(0, 4095, end.numel()), end));
}

TEST(Draw, MoreDimsThanABoxHasAreRefused) {
  torch::Tensor full = torch::empty({4, 4, 4, 4, 4, 4, 4});
  torch::Tensor part = full;
  for (std::int64_t dim = 0; dim < 7; ++dim) part = part.narrow(dim, 0, 2);
  EXPECT_THROW(draw(part, kLaws[0], 0, full.strides()), UsageError);
}

// The arguments are values that Philox can generate: multiples of 2^-53.
TEST(PortableMathematics, IsTheLibrarysButForTheLastBits) {
  double largest_log = 0, largest_cosine = 0;
  const auto compare = [&](double u) {
    const double log = std::log(1 - u);
    largest_log = std::max(largest_log, std::abs(portable_log(1 - u) - log) / std::max(std::abs(log), 0x1p-53));
    largest_cosine = std::max(largest_cosine, std::abs(portable_cos_of_turns(u) - std::cos(2 * std::numbers::pi * u)));
  };
  for (int i = 0; i < 200000; ++i) compare(i / 200000.0);
  for (int power = 1; power <= 53; ++power) {
    compare(std::ldexp(1.0, -power));
    compare(1 - std::ldexp(1.0, -power));
  }
  EXPECT_LT(largest_log, 4e-16);
  EXPECT_LT(largest_cosine, 1e-15);
  EXPECT_EQ(portable_log(1), 0);
  EXPECT_EQ(portable_cos_of_turns(0.25), 0);
  EXPECT_EQ(portable_cos_of_turns(0.5), -1);
}

}  // namespace
}  // namespace gantry::kernels
